"""Moves of replicas, as a node carries them out."""
