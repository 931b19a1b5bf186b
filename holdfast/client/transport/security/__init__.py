"""Login of a client: its credentials, and its side of SASL."""
