"""Benchmarks of one subject each, mostly of Holdfast alone: a program in each file."""
