"""Moves in the usual mix: whole nodes whose partitions move, by the metadata group and the driver of production."""
