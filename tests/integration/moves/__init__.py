"""Replicas that move between the nodes of real clusters, under load and through crashes."""
