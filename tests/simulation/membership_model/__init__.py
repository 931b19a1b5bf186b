"""A model of one group while its members change, searched exhaustively within bounds. Begin with `model`."""
