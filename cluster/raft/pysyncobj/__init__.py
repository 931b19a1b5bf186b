"""The library pysyncobj, and all that is known of its inside: no other package spells its private names.

Read `core` first. `docs/internals/pysyncobj.md` says what the library does wrong, and which file answers it.
"""
