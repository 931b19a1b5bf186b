"""Command `python -m benchmarks`: see matrix/run.py."""

from benchmarks.matrix.run import main

main()
