"""From the image to replicas: opening, moving, leading."""
