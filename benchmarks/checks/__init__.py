"""Benchmark of judging the history of a long chaos run."""
