"""What operators ask of a node, and what it does then.

Read `administration` first; `$management` links bring it here.
"""
