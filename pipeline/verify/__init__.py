"""The verifying job."""
