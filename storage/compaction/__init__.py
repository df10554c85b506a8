"""Log compaction as a value: which part of a log is cleaned, and what becomes of each batch."""
