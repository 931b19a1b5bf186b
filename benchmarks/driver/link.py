"""Base of sender and receiver: the attach, its refusal, redirects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cproton
from cproton import lib

from benchmarks.driver.filters import FilterKind
from benchmarks.driver.wire import PeerError, Url, Wire, describe, put_symbol_map, read_simple_map

REDIRECT_CAPABILITY = "amqp:link:redirect"
REDIRECT_HOPS = 5  # more than one hop already means that a leader moved under us; five means a loop


@dataclass(frozen=True)
class LinkOptions:
    """Options of a link: the only differences between peers."""

    follow_redirects: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    settled: bool = False  # the receiver asks for pre-settled deliveries
    durable: bool = False  # events say so in a header, for peers that store no others
    filter_kind: FilterKind = "none"
    start: str = "latest"


class Redirected(Exception):
    """The peer serves this address elsewhere."""

    def __init__(self, url: Url) -> None:
        super().__init__(f"redirected to {url.host}:{url.port}")
        self.url = url


class DrivenLink:
    """One link on one connection. It hears its wire's events and does its own work after every read."""

    def __init__(self, url: Url, name: str, options: LinkOptions) -> None:
        self.name = name
        self.options = options
        self.opened = False
        self.hops = 0
        self._connect(url)

    def _connect(self, url: Url) -> None:
        desired = (REDIRECT_CAPABILITY,) if self.options.follow_redirects else ()
        self.wire = Wire(url, self.name, desired)
        self.wire.on_event = self._on_event
        self.link = self._make_link(url)
        if self.options.properties:
            put_symbol_map(lib.pn_link_properties(self.link), self.options.properties)
        lib.pn_link_open(self.link)
        self.wire.flush()

    def _make_link(self, url: Url) -> Any:
        raise NotImplementedError

    def follow(self, redirect: Redirected) -> None:
        """Attach again at the address to which the peer redirected."""
        self.hops += 1
        if self.hops > REDIRECT_HOPS:
            raise PeerError(f"{self.name}: redirected {self.hops} times in a row; the last was {redirect}")
        self.wire.close()
        self._connect(redirect.url)

    def _on_event(self, kind: int, event: Any) -> None:
        if kind == cproton.PN_DELIVERY:
            self._on_delivery(lib.pn_event_delivery(event))
        elif kind == cproton.PN_LINK_REMOTE_OPEN:
            self._on_answer()
        elif kind in (cproton.PN_LINK_REMOTE_CLOSE, cproton.PN_LINK_REMOTE_DETACH):
            self._on_detach()
        elif kind in (cproton.PN_SESSION_REMOTE_CLOSE, cproton.PN_CONNECTION_REMOTE_CLOSE, cproton.PN_TRANSPORT_ERROR):
            raise PeerError(f"{self.name}: the peer ended the conversation: {self.wire.condition()}")

    def _on_answer(self) -> None:
        """The attach was answered. A null terminus means refused: the reason follows in a detach."""
        terminus = self._remote_terminus()
        if lib.pn_terminus_get_type(terminus) != cproton.PN_UNSPECIFIED:
            self.opened = True
            self._on_opened()

    def _remote_terminus(self) -> Any:
        raise NotImplementedError

    def _on_opened(self) -> None:
        """The link can be used."""

    def _on_delivery(self, delivery: Any) -> None:
        raise NotImplementedError

    def _on_detach(self) -> None:
        condition = lib.pn_link_remote_condition(self.link)
        name = cproton.pn_condition_get_name(condition) if lib.pn_condition_is_set(condition) else None
        if name == REDIRECT_CAPABILITY and self.options.follow_redirects:
            raise Redirected(self._redirect_url(read_simple_map(lib.pn_condition_info(condition))))
        reason = describe(condition) if name else "no reason given"
        raise PeerError(f"{self.name}: the peer detached the link: {reason}")

    def _redirect_url(self, info: dict[str, str | int]) -> Url:
        old = self.wire.url
        host = info.get("network-host") or info.get("hostname") or old.host
        return Url(
            str(host), int(info.get("port", old.port)), str(info.get("address", old.address)),
            old.user, old.password, str(info.get("hostname") or host),
        )  # fmt: skip
