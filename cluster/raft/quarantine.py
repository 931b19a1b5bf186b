"""Quarantine of a group at fault: nothing more is done with it on this node, and all other groups go on.

A fault is a rule of Raft that does not hold, an impossible state, or a value that does not fit. The group's writes and
messages of the turn are dropped (but for appends that have left), as if its process had been killed before the write.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator

from cluster.raft.group import RaftGroup
from cluster.raft.interfaces import DiskBatch
from cluster.raft.proposal_outcomes import NodeUnfit, RaftError

log = logging.getLogger(__name__)

GROUP_FAULTS = (RaftError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError, struct.error)
"""Errors that a wrong value or a defect raises inside a group. Errors of the disk and of memory are not among them."""


class Quarantine:
    """Door of a node's quarantine. `silence`: drops what is left of a group in the turn, and tells of it."""

    def __init__(self, silence: Callable[[RaftGroup], None]) -> None:
        self._silence = silence

    def guarded(self, group: RaftGroup, work: Callable[..., object], *arguments: object) -> bool:
        """Do the work, or put the group into quarantine. Returns whether the group is sound."""
        if group.quarantined is not None:
            return False
        try:
            work(*arguments)
        except NodeUnfit:
            raise
        except GROUP_FAULTS as error:
            self.put(group, error)
        return group.quarantined is None

    def put(self, group: RaftGroup, error: BaseException) -> None:
        log.critical(
            "%s is in quarantine: nothing more is done with it on this node, all other groups go on. %s",
            group.name, error, exc_info=unless_told(error),
        )  # fmt: skip
        group.quarantine(str(error) or type(error).__name__)
        self._silence(group)


class NothingStored:
    """The disk of a group in quarantine that cannot be loaded. Only reading is asked of it."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def batch(self) -> DiskBatch:
        raise AssertionError("a group in quarantine writes nothing")

    def write(self, batch: DiskBatch) -> None:
        raise AssertionError("a group in quarantine writes nothing")

    must_drain = False

    def drain(self) -> None:
        raise AssertionError("a group in quarantine writes nothing")

    def sync(self) -> None:
        raise AssertionError("a group in quarantine writes nothing")


def unless_told(error: BaseException) -> BaseException | None:
    """The traceback that a log line needs: none for an error of this package, which says all there is to say."""
    return None if isinstance(error, RaftError) else error
