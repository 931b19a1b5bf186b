"""A cluster of node processes on this machine: their files, their start, and how they are told from strangers."""
