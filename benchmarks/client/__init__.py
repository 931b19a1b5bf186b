"""What the Python client achieves, and what idempotent publishing costs beside plain publishing, in one run."""
