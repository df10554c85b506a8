"""Spark itself: its session, Java, and the official Kafka connector."""
