"""Workloads, run: loaded, verified, and driven up to the cluster's limit."""
