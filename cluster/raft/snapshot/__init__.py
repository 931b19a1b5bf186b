"""How a replica that is behind its leader's log gets the state: sender, receiver, and what is on disk meanwhile.

Read `catch_up` first, then `sender` and `receiver`.
"""
