"""Who may speak: secrets, and proofs of knowing them."""
