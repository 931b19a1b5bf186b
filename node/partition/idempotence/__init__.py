"""Idempotent producers in a partition: `producer_state` decides, `producer_init` is what the leader adds."""
