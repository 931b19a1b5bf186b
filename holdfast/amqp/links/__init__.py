"""Links and what belongs to them: the two directions, their ends (termini), and the states of deliveries.

Read `link` first, then `sender_link` and `receiver_link`.
"""
