"""Benchmark of a cluster that grows and shrinks: what clients notice of moves, and how long moves take."""
