"""The settings of a node, a module for each part of it that reads them. `NodeConfig` is all of them."""
