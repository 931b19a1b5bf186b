"""Links of idempotent producers, which number their events. Read `idempotent_link` first."""
