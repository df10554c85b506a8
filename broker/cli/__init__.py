"""The command line (click, rich). Imports are lazy: `varve start` and `--help` must be quick."""
