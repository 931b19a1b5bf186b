"""Connections that have not logged in: bounded in all, and from one address.

The problem: before the login no peer is known, and one that opens sockets faster than others log in pushes them out.
The rules: a newcomer is always taken, and where there are too many an earlier one makes room: the oldest from the
newcomer's address when that is at its limit, else the oldest from the address that has most. So a flood from one host
pushes out itself. Rejected: refusing newcomers, which lets idle sockets keep everybody out; and an address's limit
after the login, where users have accounts, and a thousand honest clients may share one address.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")

UNOPENED_CONNECTIONS = 1000
"""Connections of a listener whose peer has not opened yet: honest peers take milliseconds."""

UNOPENED_FROM_ONE_ADDRESS = 250
"""Unopened connections from one address. All clients of a large host, or behind one translated address, may come back
at once after a failure; those that are cut try again, and so many log in within a second."""


class UnauthenticatedConnections(Generic[K]):
    def __init__(self) -> None:
        self._all: dict[K, str] = {}
        self._by_address: dict[str, dict[K, None]] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._all)

    def add(self, who: K, address: str) -> K | None:
        """Add a connection; return the one that must make room, which is removed, or None."""
        self._all[who] = address
        from_there = self._by_address.setdefault(address, {})
        from_there[who] = None
        if len(from_there) <= UNOPENED_FROM_ONE_ADDRESS:
            if len(self._all) <= UNOPENED_CONNECTIONS:
                return None
            from_there = max(self._by_address.values(), key=len)
        oldest = next(iter(from_there))
        self.remove(oldest)
        return oldest

    def remove(self, who: K) -> None:
        """Remove a connection that has opened or is gone. Idempotent."""
        address = self._all.pop(who, None)
        if address is None:
            return
        from_there = self._by_address[address]
        del from_there[who]
        if not from_there:
            del self._by_address[address]
