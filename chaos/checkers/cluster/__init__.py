"""Checkers of promises about the cluster itself: discovery, reported state, and the cost of a failed node to others."""
