"""Links of idempotent producers.

Read `idempotent_link` first; the numbers are judged in `node/partition/idempotence`.
"""
