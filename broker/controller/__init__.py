"""The metadata leader at work, and how other nodes ask it."""
