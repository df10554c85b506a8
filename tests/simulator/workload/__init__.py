"""What clients do in the simulation, one kind of client a file. They speak the protocol package and nothing else."""
