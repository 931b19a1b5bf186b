"""Single entries of a partition's log, as its leader tells them: the fate of one (`unknown_outcome`), and their
contents (`entry_dump`).
"""
