"""Shared parts of all commands: frame and options, output, settings, and errors."""
