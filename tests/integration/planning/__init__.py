"""Plans, carried out by real nodes under load."""
