"""The write-ahead log of the store: its format, writing and recovery, and giving its space back."""
