"""The small HTTP listener for scrapers and supervisors: GET and HEAD of three paths, one answer per connection.

The problem: monitoring must not be a way to hurt the node. The rules: a request is read within a bound of bytes and
time, only so many at once, no body is ever read, and nothing that it does can stop the node. Where there are too many,
the one goes that has been there longest without being answered: a supervisor asks at once, and must be answered though
others hold sockets and say nothing. Rejected: a web framework; four paths do not need one, and it would share the loop
with the data plane. And turning newcomers away: idle sockets would keep a supervisor out, which then kills the node.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence

from node.config import HostAndPort
from node.monitoring.health import Health, HealthCheck, StartupState
from node.monitoring.metrics import CONTENT_TYPE, Metrics

log = logging.getLogger("holdfast.monitoring")

MAX_HEAD_BYTES = 8192
"""A scraper's request is some hundred bytes."""

REQUEST_TIMEOUT_S = 5.0
"""Time from accept to the end of the request's head; and for the answer to be taken."""

MAX_CONNECTIONS = 32
"""Connections at once: several scrapers and a supervisor; beyond, the one that waits longest makes room."""

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

JSON = "application/json"
PLAIN = "text/plain; charset=utf-8"


class MonitoringServer:
    def __init__(self, starting: StartupState) -> None:
        self._metrics: Metrics | None = None
        self._health: Health | StartupState = starting
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # in order of arrival

    def attach(self, metrics: Metrics, health: Health) -> None:
        """Attach the parts of the composed node, which then answers for itself."""
        self._metrics, self._health = metrics, health

    @property
    def addresses(self) -> list[tuple[str, int]]:
        sockets = self._server.sockets if self._server is not None else ()
        return [socket.getsockname()[:2] for socket in sockets]

    async def start(self, address: HostAndPort) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        self._server = await asyncio.start_server(self._accept, address.host, address.port, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            self._open.pop(oldest).transport.abort()
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="monitoring")
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, kind, body, with_body = await self._answer(head)
            writer.write(_message(status, kind, body, with_body))
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            writer.transport.abort()  # not a request, or nobody waits for the answer
        except Exception:
            log.exception("a monitoring request failed")
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> tuple[int, str, bytes, bool]:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return 400, PLAIN, b"not an HTTP/1 request\n", True
        method, path = words[0], words[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return 405, PLAIN, b"only GET and HEAD\n", True
        status, kind, body = await self._page(path)
        return status, kind, body, method == b"GET"

    async def _page(self, path: bytes) -> tuple[int, str, bytes]:
        now_s = time.monotonic()
        match path:
            case b"/metrics":
                if self._metrics is None:
                    return _checked(self._health.ready(now_s))
                families = self._metrics.copy(now_s)
                rendered = await asyncio.get_running_loop().run_in_executor(None, self._metrics.render, families)
                return 200, CONTENT_TYPE, rendered
            case b"/health/live":
                return _checked(self._health.live(now_s))
            case b"/health/ready":
                return _checked(self._health.ready(now_s))
            case _:
                return 404, PLAIN, b"there are /metrics, /health/live and /health/ready\n"


def _checked(checks: Sequence[HealthCheck]) -> tuple[int, str, bytes]:
    fine = all(check.ok for check in checks)
    document = {"ok": fine, "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]}
    return (200 if fine else 503), JSON, json.dumps(document).encode() + b"\n"


def _message(status: int, kind: str, body: bytes, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if with_body else b"")
