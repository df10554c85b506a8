"""What request handlers are built on: views of the cluster, quotas, fetch sessions, answers that wait."""
