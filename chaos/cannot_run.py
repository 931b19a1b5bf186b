"""What keeps a run from being one."""


class CannotRun(Exception):
    """Something that a run needs is not here; the message says what, whose it is, and what to do."""


class BrokenOff(CannotRun):
    """It was here when the run began."""
