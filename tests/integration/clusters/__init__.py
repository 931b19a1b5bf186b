"""Clusters of real processes for the tests."""
