"""What is at work on a host while a run lasts. Sent there as text, as root, for nothing but the standard library: these
modules import no others of ours.
"""
