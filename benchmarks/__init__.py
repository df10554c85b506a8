"""What scripts/bench runs: rows of work for a Kafka-protocol cluster, measured from outside."""
