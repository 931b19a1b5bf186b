"""The jobs of `pipeline/`, against calculations of their own."""
