"""The only module that knows how pysyncobj spells its private parts.

The problem: what has to be corrected lies behind double underscores. The rule: one exact version of the
library is accepted, its private names are written in this module and in `core`'s overrides only, and its
clock is set in one place.

Rejected: a copy of the library with edits. A pinned package with named overrides shows what was changed and
keeps its licence and its authors visible.
"""

from __future__ import annotations

import _socket
import socket
from collections.abc import Callable
from typing import Any

from pysyncobj import syncobj as library
from pysyncobj.version import VERSION

from cluster.raft.proposal_outcomes import InvariantBroken

REQUIRED_VERSION = "0.3.17"

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2

NO_OP = b"\x01"
"""The entry a new leader writes to commit those of earlier terms."""


def check_version() -> None:
    """Refuse to run over another pysyncobj: every override below was read against one text."""
    if VERSION != REQUIRED_VERSION:
        raise InvariantBroken(
            f"pysyncobj {VERSION} is installed, but cluster.raft is verified with {REQUIRED_VERSION} only; "
            f"install pysyncobj=={REQUIRED_VERSION}"
        )


def set_clock(monotonic: Callable[[], float]) -> None:
    """Give the library its time. The host does it at every entry, so hosts with different clocks can share a
    process."""
    library.monotonicTime = monotonic


def _journal_as_given(log_store: Any) -> Any:
    """Replaces `createJournal`: the configuration carries the log store itself instead of a file name."""
    return log_store


check_version()
library.createJournal = _journal_as_given
# Importing the library replaces `socket.inet_ntop` of the whole process by a stand-in for Windows, which raises here.
socket.inet_ntop = _socket.inet_ntop
