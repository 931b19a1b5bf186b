"""Benchmark matrix of `make bench`: rows (`rows`), one measurement (`cell`), a run (`run`), the table (`report`)."""
