"""Frames that proton cannot read or write as needed: the handshake, attaches, and what is checked before proton.

Read `handshake`, then `performatives`, then `frame_scanner`. Nothing here holds a link.
"""
