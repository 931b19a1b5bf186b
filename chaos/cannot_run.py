"""Errors that prevent a run or end it early."""


class CannotRun(Exception):
    """Something that a run needs is missing; the message says what, whose fault it is, and what to do."""


class BrokenOff(CannotRun):
    """Something that a run needs was lost during the run."""
