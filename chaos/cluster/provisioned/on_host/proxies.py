"""The ways of a node: the Toxiproxy of its host."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any

from chaos.cluster.provisioned.on_host.services import Trouble, manager

PROXIES = "holdfast-toxiproxy"
ANSWER_WITHIN_S = 60.0
"""To thaw a stream whose receiver has gone takes them 5 s."""


class Proxies:
    """The Toxiproxy of this host. What was done to its proxies is undone by name: others may have toxics of theirs."""

    def __init__(self, api: str) -> None:
        self._api = api
        self._harm: list[tuple[str, str]] = []  # proxy, toxic; of a proxy that was disabled, ""

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection(self._api, timeout=ANSWER_WITHIN_S)
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            told = answer.read()
        if answer.status >= 400 and not (method == "DELETE" and answer.status == 404):
            raise Trouble("failed", f"Toxiproxy at {self._api}: {method} {path}: {told.decode(errors='replace')}")
        return json.loads(told) if told else None

    def listed(self) -> list[dict[str, Any]]:
        """And that each is whole."""
        found = list(self._ask("GET", "/proxies").values())
        for one in found:
            if one["toxics"] or not one["enabled"]:
                raise Trouble("proxies", f"proxy {one['name']} is not whole: it has toxics, or refuses")
        return [{"name": one["name"], "listen": one["listen"], "upstream": one["upstream"]} for one in found]

    def add(self, proxy: str, toxic: dict[str, Any]) -> None:
        self._harm.append((proxy, toxic["name"]))
        self._ask("POST", f"/proxies/{proxy}/toxics", toxic)

    def remove(self, proxy: str, name: str) -> None:
        self._ask("DELETE", f"/proxies/{proxy}/toxics/{name}")
        self._harm = [one for one in self._harm if one != (proxy, name)]

    def enable(self, proxy: str, enabled: bool) -> None:
        if not enabled:
            self._harm.append((proxy, ""))
        self._ask("POST", f"/proxies/{proxy}", {"enabled": enabled})
        if enabled:
            self._harm = [one for one in self._harm if one != (proxy, "")]

    def heal(self) -> None:
        for proxy, name in list(self._harm):
            if name:
                self.remove(proxy, name)
            else:
                self.enable(proxy, True)


def api_of_proxies() -> str:
    """Where the service listens, by its own words; nothing: there is none here."""
    try:
        pid = manager(PROXIES).pid()
    except Trouble:
        return ""
    if not pid:
        raise Trouble("down", f"{PROXIES} does not run")
    with open(f"/proc/{pid}/cmdline") as file:
        words = file.read().split("\0")
    return f"{words[words.index('-host') + 1]}:{words[words.index('-port') + 1]}"
