"""The contestants: each module starts one kind of cluster on loopback, names its addresses, and takes it down
again.

Rule never broken: a peer lives in one temporary directory, listens on 127.0.0.1 only, is stopped by the process
ids it recorded, and leaves nothing behind: no process, no file, no service enabled on the machine.
"""
