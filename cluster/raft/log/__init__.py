"""The log of a group: where entries lie, which of them are in memory, and when they may go.

Read `log_store` first; `key_layout` is its layout in the store. Events of users are never interpreted here.
"""
