"""What a leader tells of single entries of its log: what became of one (`unknown_outcome`), what is in them
(`entry_dump`).
"""
