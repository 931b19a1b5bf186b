"""Balancing of a node: what it knows of the others, plans that it makes by itself, and those that people ask for."""
