"""How long it takes to judge the history of a long chaos run."""
