"""Link redirects, as a client follows and remembers them.

The rules: a redirect is followed at most `MAX_HOPS` times in a row; what it taught is remembered (an address for each
link's log and partition) and forgotten as soon as that address fails, so that a stale one costs one attempt.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.client.errors import LinkRedirected, ProtocolError
from holdfast.client.transport.address import Address

MAX_HOPS = 5  # a cluster has one leader per partition: more hops are a loop, or an election that deserves a pause
MAX_PLACES = 4096  # where links were redirected to; a client with more partitions asks again for some


class Redirects:
    """Addresses to which nodes have sent links."""

    def __init__(self, say: Callable[..., None], *, follow: bool) -> None:
        self._say, self._follows = say, follow
        self._places: dict[str, Address] = {}  # by link

    def target(self, what: str) -> Address | None:
        """Address that this link was redirected to, if it is remembered."""
        return self._places.get(what)

    def remember(self, what: str, address: Address) -> None:
        self._places[what] = address

    def forget(self, what: str) -> None:
        self._places.pop(what, None)

    def follow(self, redirect: LinkRedirected, what: str) -> Address:
        """Take a redirect in and return its address. Raises ProtocolError if this client has asked for none."""
        if not self._follows:
            raise ProtocolError(f"the node redirects although we cannot follow: {redirect}")
        target = Address(redirect.host, redirect.port, redirect.hostname)
        self._say("%s: redirected to %s", what, target)
        if len(self._places) >= MAX_PLACES:
            self._places.pop(next(iter(self._places)))
        self._places[what] = target
        return target
