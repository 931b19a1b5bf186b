"""Promises about the cluster itself, not about single events: how it is found, what it says of itself, and what the
failure of one node costs the others."""
