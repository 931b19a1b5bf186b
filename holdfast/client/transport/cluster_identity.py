"""Identity of the log and of the cluster that a client means: those that it met first, not what replaces them one day.

Problem: a log may be deleted and made anew under its name, and another cluster may answer at the same address.
Rule never broken: from the first link on, every link of a client is to the same making of the log in the same cluster,
or there is none. A node tells the identity if asked for it; the client says it with every later attach.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Identity:
    """Identity of one log's address, or of the cluster, for one client. `asked`: the attach property that has it."""

    def __init__(self, asked: str) -> None:
        self._asked = asked
        self.value: str | None = None  # not met yet, or the node does not tell

    def properties(self) -> dict[str, Any]:
        """Properties of an attach, which say the identity."""
        return {self._asked: self.value}

    def learn(self, properties: Mapping[str, Any]) -> None:
        """Learn the identity from the answer to an attach."""
        told = properties.get(self._asked)
        if self.value is None and isinstance(told, str):
            self.value = told
