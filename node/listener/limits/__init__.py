"""Limits of one peer, in bytes (`memory_budgets`) and time (`fair_scheduling`), shared by all listeners of the node."""
