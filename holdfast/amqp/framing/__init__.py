"""Frames that proton cannot read or write as needed: the handshake, attaches, and what is checked before proton.

Read `handshake`, then `frame_scanner`, then `payload_bypass`. Nothing here holds a link.
"""
