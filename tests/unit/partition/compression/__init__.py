"""Record batches whose records are compressed."""
