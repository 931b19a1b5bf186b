"""Identity and rights of clients: certificates, logins, grants, and the audit of all three.

Problem: a client that reaches a port must have no rights until it has proved who it is, and then no more than it was
granted.
Rule never broken: an action that is not allowed is refused. A file that cannot be read, a key that is not found and a
name that is unknown refuse, too. No failure opens a way.
"""
