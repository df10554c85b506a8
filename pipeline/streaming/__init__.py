"""A streaming query between two topics, under faults, judged record by record. See README.md."""
