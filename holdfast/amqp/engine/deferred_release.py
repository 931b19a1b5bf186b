"""Remains of an engine: proton's objects, released a few links at a time.

The problem: proton takes some microseconds to free a link that is the first of its session, and searches all links of
the session for any other; a connection freed as a whole takes that way, a tenth of a second for some thousand links, in
which nobody else is served. The rule: nothing is freed here that anything can still use; the engine is over, and the
transport is unbound before (bound, it keeps what it has yet to tell of). Rejected: a thread. The interpreter's lock is
free meanwhile, but the objects are shared with whatever else holds a reference.
"""

from __future__ import annotations

from typing import Any

from cproton import ffi, lib

UNSETTLED_AS_A_LINK = 50
"""Deliveries that are not settled take as long to free as a link."""

REFERENCES_AS_A_LINK = 16
"""References of ours to links and sessions take as long to give back."""


class DeferredRelease:
    __slots__ = ("_collector", "_connection", "_references", "_transport")

    def __init__(self, connection: Any, transport: Any, collector: Any, references: list[Any]) -> None:
        """`references` of ours, counted by proton: those that are last are given back first, links before sessions."""
        self._connection, self._transport, self._collector = connection, transport, collector
        self._references = references
        lib.pn_transport_unbind(transport)
        lib.pn_collector_release(collector)
        lib.pn_connection_collect(connection, ffi.NULL)

    def release(self, most_links: int) -> bool:
        """Release at most so many links. Returns True when all is released; until then, call it again."""
        connection, references = self._connection, self._references
        while references:
            if most_links <= 0:
                return False
            most_links -= 1
            for impl in references[-REFERENCES_AS_A_LINK:]:
                lib.pn_decref(impl)
            del references[-REFERENCES_AS_A_LINK:]
        link = lib.pn_link_head(connection, 0)
        while link != ffi.NULL:
            if most_links <= 0:
                return False
            most_links -= 1 + lib.pn_link_unsettled(link) // UNSETTLED_AS_A_LINK
            following = lib.pn_link_next(link, 0)
            lib.pn_link_free(link)
            link = following
        lib.pn_connection_release(connection)
        lib.pn_decref(connection)
        lib.pn_decref(self._transport)
        lib.pn_collector_free(self._collector)
        return True
