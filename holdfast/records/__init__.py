"""Events that travel together: the record batch, and the codecs that make its records smaller."""
