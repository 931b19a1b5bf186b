"""The transaction coordinator, by itself and with the partitions that it decides for."""
