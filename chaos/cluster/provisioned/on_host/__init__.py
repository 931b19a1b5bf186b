"""Modules that run on a host during a run.

They are sent there as text and run as root, with the standard library only. So they import no other modules of ours.
"""
