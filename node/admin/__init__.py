"""Administrative requests of operators, and their execution.

Read `administration` first; `$management` links bring it here.
"""
