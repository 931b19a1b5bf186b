"""Which log a client means: the one that it met first under the name, not one that was made later in its place.

Rule never broken: from the first link on, every link of a client is to the same making of the log, or there is none.
A node tells the identity to who asks for it; the client says it with every later attach.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import ulong


class LogIdentity:
    """Of one address, for one client."""

    def __init__(self) -> None:
        self.value: int | None = None  # not met yet, or the node does not tell

    def properties(self) -> dict[str, Any]:
        """What an attach says."""
        return {protocol.LINK_LOG: None if self.value is None else ulong(self.value)}

    def learn(self, properties: Mapping[str, Any]) -> None:
        """From the answer to an attach."""
        told = properties.get(protocol.LINK_LOG)
        if self.value is None and isinstance(told, int):
            self.value = int(told)
