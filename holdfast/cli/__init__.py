"""The `holdfast` command."""

from holdfast.cli.app import main

__all__ = ["main"]
