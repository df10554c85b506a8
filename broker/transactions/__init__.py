"""Transactions: who writes under a transactional id, which partitions are in its transaction, and how it ends."""
