"""Loads of clusters that something befalls meanwhile."""
