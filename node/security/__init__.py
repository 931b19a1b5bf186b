"""Who a client is, and what it may do: certificates, logins, grants, and the record of all three.

Problem: whoever reaches a port must be nobody until it has proved who it is, and then no more than it was granted.
Rule never broken: what is not allowed is refused; a file that cannot be read, a key that is not found, a name that is
unknown refuse, too. Nothing here opens a way because something else failed.
"""
