"""The controller's decisions, a module for each family of what is decided."""
