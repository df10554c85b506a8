"""`python -m pipeline report`: one HTML file that shows what a run's folder holds (README.md)."""
