"""Checkers of promises about the cluster itself: discovery, the state that it reports, and the cost of a failed node to
the others."""
