"""Clusters whose nodes come and go."""
