"""A world in one process: virtual time, memory disks, a memory network, all decided by one seed."""
