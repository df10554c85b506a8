"""The loading job."""
