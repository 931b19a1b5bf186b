"""A peer that does exactly what a test says: the engine in the client role on a socket, or a bare socket.

Stock clients behave well, and hide what they are told. This one can grant absurd credit, never settle, never read, and
shows every event and error as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.amqp import (
    ConnectionClosed,
    ConnectionOpened,
    Engine,
    Error,
    Event,
    LinkDetached,
    LinkOpened,
    ReceiverLink,
    SenderLink,
    Settlements,
    Transfers,
    symbol,
)

WAIT_S = 90
E = TypeVar("E", bound=Event)


async def eventually(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Waits for a state of the node that nothing announces."""
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for, by definition
            await asyncio.sleep(0.005)


def message(body: bytes = b"x") -> bytes:
    """The smallest message: one data section."""
    if len(body) < 256:
        return b"\x00Su\xa0" + bytes((len(body),)) + body
    return b"\x00Su\xb0" + len(body).to_bytes(4, "big") + body


class Peer:
    """`reading` False: bytes that arrive are left in the socket."""

    def __init__(self, port: int, *, desired: Sequence[str] = (), container: str = "peer", **options: Any) -> None:
        self.engine = Engine("client", container_id=container, desired_capabilities=desired, **options)
        self.history: list[Event] = []
        self.received: dict[Any, list[bytes]] = {}
        self.outcomes: dict[Any, list[tuple[int, Any]]] = {}
        self.reading = asyncio.Event()
        self.reading.set()
        self._port = port
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Peer:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._task = asyncio.create_task(self._read(reader))
        self.engine.open()
        await self.flush()
        await self.wait(ConnectionOpened)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        assert self._writer is not None
        self._task.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            await self.reading.wait()
            data = await reader.read(65536)
            if data:
                self.engine.receive(data)
            else:
                self.engine.receive_eof()
            for event in self.engine.events():
                if isinstance(event, Transfers):
                    self.received.setdefault(event.link, []).extend(event.payloads)
                elif isinstance(event, Settlements):
                    self.outcomes.setdefault(event.link, []).extend(event.outcomes)
                self.history.append(event)
            self._news.set()
            if not data:
                return
            await self.flush()

    async def flush(self) -> None:
        """Sends what the engine has; does not wait for a peer that does not read."""
        assert self._writer is not None
        while (data := self.engine.data_to_send()) and not self._writer.is_closing():
            self._writer.write(data)

    async def wait(self, kind: type[E], match: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of the kind that matches, past ones included."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for event in self.history:
                    if isinstance(event, kind) and match(event):
                        return event
                assert not isinstance(self.history[-1:], ConnectionClosed), self.history[-1]
                self._news.clear()
                await self._news.wait()

    async def until(self, condition: Callable[[], object]) -> None:
        """Until something that arrived makes it true."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def sender(self, target: Any, partition: str | None = None, **options: Any) -> SenderLink:
        link = self.engine.open_sender(target, properties=_bound(partition), **options)
        await self._opened(link)
        await self.until(lambda: link.credit > 0)
        return link

    async def receiver(self, source: Any, partition: str | None = None, *, credit: int = 0, **options: Any) -> Any:
        link: ReceiverLink = self.engine.open_receiver(source, properties=_bound(partition), **options)
        await self._opened(link)
        if credit:
            await self.grant(link, credit)
        return link

    async def grant(self, link: ReceiverLink, credit: int) -> None:
        link.grant(credit)
        await self.flush()

    async def send(self, link: SenderLink, payloads: Sequence[bytes], settled: bool | None = None) -> range:
        numbers = link.send_many(payloads, settled)
        await self.flush()
        return numbers

    async def states(self, link: SenderLink, count: int) -> list[Any]:
        """The outcomes of the first `count` sends of a link, in the order of sending."""
        await self.until(lambda: len(self.outcomes.get(link, [])) >= count)
        return [state for _, state in sorted(self.outcomes[link])]

    async def refused(self, link: Any) -> Error:
        """Why a link that we attached is refused, or was closed."""
        await self.flush()
        detached = await self.wait(LinkDetached, lambda event: event.link is link)
        assert detached.error is not None
        assert detached.closed
        return detached.error

    async def _opened(self, link: Any) -> None:
        await self.flush()

        def about(event: Event) -> bool:
            return isinstance(event, LinkOpened | LinkDetached) and event.link is link

        await self.until(lambda: any(map(about, self.history)))
        event = next(filter(about, self.history))
        assert isinstance(event, LinkOpened), event


def _bound(partition: str | None) -> dict[str, Any] | None:
    return None if partition is None else {"event-streams-partition": symbol(partition)}
