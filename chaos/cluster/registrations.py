"""Watch of the registrations of nodes in ZooKeeper, by a client of our own that looks all the time.

A look is not atomic: a registration may vanish between the list of names and its reading. Then the look shows it as
missing. While ZooKeeper does not answer, there are no looks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from chaos.history.tables import RegistrationRow

LOOK_EVERY_S = 0.2
ANSWER_WITHIN_S = 2.0
RECONNECT_MOST_S = 0.5


def unanswered() -> tuple[type[Exception], ...]:
    """Return the errors that are raised while ZooKeeper does not answer."""
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    return (KazooException, KazooTimeoutError)


def look(client: Any, path: str, number: int) -> list[RegistrationRow]:
    """Read the registrations below a path. Raises `unanswered()`."""
    from kazoo.exceptions import NoNodeError

    found = []
    for name in sorted(client.get_children_async(path).get(timeout=ANSWER_WITHIN_S)):
        with contextlib.suppress(NoNodeError):
            data, stat = client.get_async(f"{path}/{name}").get(timeout=ANSWER_WITHIN_S)
            told = json.loads(data)
            found.append(
                RegistrationRow(
                    number, time.monotonic_ns(), int(name), stat.ephemeralOwner, str(told["token"]), str(told["rpc"])
                )
            )
    return found


class RegistrationWatch:
    """A thread that looks until `stop` and passes the rows of each look to `note`."""

    def __init__(self, hosts: str, path: str, note: Callable[[list[RegistrationRow]], None]) -> None:
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=RECONNECT_MOST_S, ignore_expire=True)
        quiet = logging.getLogger("chaos.zookeeper")
        self._client: Any = KazooClient(hosts, timeout=ANSWER_WITHIN_S, connection_retry=retry, logger=quiet)
        self._path, self._note = path, note
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="looks-at-zookeeper", daemon=True)
        self._looks = 0

    def start(self) -> None:
        self._client.start_async()
        self._thread.start()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._look_once()

    def _look_once(self) -> None:
        if not self._client.connected:
            return
        with contextlib.suppress(*unanswered()):
            self._looks += 1
            self._note(look(self._client, self._path, self._looks))

    def stop(self) -> None:
        """Look once more, then end the thread."""
        self._over.set()
        self._thread.join()
        self._look_once()
        self._client.stop()
        self._client.close()
