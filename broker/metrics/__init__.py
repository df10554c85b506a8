"""What a node measures, under which names, and as the text that Prometheus reads."""
