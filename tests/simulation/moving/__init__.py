"""Schedules in which groups change their members: a board plays the metadata, and each node follows it at its pace."""
