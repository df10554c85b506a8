"""Spark jobs that load a Kafka-protocol cluster and prove what it kept (see pipeline/README.md)."""
