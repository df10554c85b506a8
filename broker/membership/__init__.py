"""This node among the others: identity, links, formation."""
