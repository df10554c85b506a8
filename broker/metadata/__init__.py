"""What a cluster knows about itself, as pure values: records, image, controller, formation, leaders."""
