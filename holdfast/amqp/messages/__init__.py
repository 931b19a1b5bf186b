"""Messages: as values for programs (`message`), and as sections of bytes for a node's hot path (`sections`)."""
