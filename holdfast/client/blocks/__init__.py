"""Many events of one partition at once: as they came, as columns, as arrays."""
