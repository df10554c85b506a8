"""Record batches of magic 2 (KIP-98): headers, records, compression, and the validation of produced batches."""
