"""Waits of the client that end as they should: one bound leaves out standstills, one end is not cut short."""
