"""Control of the Toxiproxy of a host, whose proxies are the ways of its node."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from chaos.cluster.provisioned.on_host.services import Trouble, manager

PROXIES = "holdfast-toxiproxy"
ANSWER_WITHIN_S = 60.0
"""Bound for an answer; Toxiproxy takes seconds to thaw a stream whose receiver is gone."""


class ProxyRefused(Trouble):
    """Toxiproxy refused an order and changed nothing."""


class Gone(ProxyRefused):
    """A proxy or toxic of that name does not exist any more."""


class Proxies:
    """The Toxiproxy of this host. It removes only our toxics, by name: others may have toxics of their own.

    `harm`: pairs of a proxy and our toxic; the toxic is "" for a disabled proxy. `note`: called when `harm` has
    changed, and before an order goes out."""

    def __init__(self, api: str, note: Callable[[], None], harm: Sequence[tuple[str, str]] = ()) -> None:
        self.api, self._note = api, note
        self.harm: list[tuple[str, str]] = list(harm)

    def _ask(self, method: str, words: Sequence[str], body: dict[str, Any] | None = None) -> Any:
        path = "".join(f"/{urllib.parse.quote(word, safe='')}" for word in words)
        connection = http.client.HTTPConnection(self.api, timeout=ANSWER_WITHIN_S)
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            told = answer.read()
        if answer.status >= 400:
            kind = Gone if answer.status == 404 else ProxyRefused if answer.status < 500 else Trouble
            raise kind("failed", f"Toxiproxy at {self.api}: {method} {path}: {told.decode(errors='replace')}")
        return json.loads(told) if told else None

    def listed(self) -> list[dict[str, Any]]:
        """List the proxies. Raises Trouble if one has toxics or refuses connections."""
        found = list(self._ask("GET", ["proxies"]).values())
        for one in found:
            if one["toxics"] or not one["enabled"]:
                raise Trouble("proxies", f"proxy {one['name']} is not whole: it has toxics, or refuses")
        return [{"name": one["name"], "listen": one["listen"], "upstream": one["upstream"]} for one in found]

    def add(self, proxy: str, toxic: dict[str, Any]) -> None:
        self._harmed((proxy, toxic["name"]), lambda: self._ask("POST", ["proxies", proxy, "toxics"], toxic))

    def remove(self, proxy: str, name: str) -> None:
        with contextlib.suppress(Gone):
            self._ask("DELETE", ["proxies", proxy, "toxics", name])
        self._forget((proxy, name))

    def enable(self, proxy: str, enabled: bool) -> None:
        def ask() -> None:
            self._ask("POST", ["proxies", proxy], {"enabled": enabled})

        if enabled:
            with contextlib.suppress(Gone):
                ask()
            self._forget((proxy, ""))
        else:
            self._harmed((proxy, ""), ask)

    def _harmed(self, one: tuple[str, str], ask: Callable[[], object]) -> None:
        self.harm.append(one)
        self._note()
        try:
            ask()
        except ProxyRefused:  # nothing changed; the toxic of that name may be another's
            self._forget(one)
            raise

    def _forget(self, one: tuple[str, str]) -> None:
        self.harm = [other for other in self.harm if other != one]
        self._note()

    def heal(self) -> None:
        """Undo each fault, even if another one fails; then raise the first error."""
        failed: list[Exception] = []
        for proxy, name in list(self.harm):
            try:
                if name:
                    self.remove(proxy, name)
                else:
                    self.enable(proxy, True)
            except (Trouble, OSError, http.client.HTTPException) as error:
                failed.append(error)
        if failed:
            raise failed[0]


def api_of_proxies() -> str:
    """Return the address of Toxiproxy's API from its command line; "" if this host has no Toxiproxy."""
    try:
        pid = manager(PROXIES).pid()
    except Trouble:
        return ""
    if not pid:
        raise Trouble("down", f"{PROXIES} does not run")
    with open(f"/proc/{pid}/cmdline") as file:
        words = file.read().split("\0")
    try:
        return f"{words[words.index('-host') + 1]}:{words[words.index('-port') + 1]}"
    except (ValueError, IndexError):
        said = " ".join(words).strip()
        raise Trouble("service", f"{PROXIES} was not started with -host and -port, as its role does: {said}") from None
