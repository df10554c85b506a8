"""The settings of a node, one module for each part of the node. `NodeConfig` combines them."""
