"""A cluster on this machine that ends with the process that asked for it. See README.md."""
