"""What a run sends."""
