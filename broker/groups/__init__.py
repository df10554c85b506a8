"""Consumer groups: who is a member, who owns which partition, and what was committed. See README.md."""
