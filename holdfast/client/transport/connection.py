"""One connection to one node: a socket, the AMQP engine, and the links over it.

Problem: the engine knows no sockets, and its users no engine; between them bytes must move in few, large pieces, and
every wait must end.
Rules never broken:
 - a link's owner hears `on_closed` exactly once, with a typed error, unless it closed the link itself;
 - nothing waits without a bound: opening, attaching and closing have one, and a silent peer ends the connection
   (`idle_timeout_s`), which ends its links;
 - bytes are bounded: while the socket takes no more, senders find no credit (`Sender.credit` is 0).
Rejected: asyncio streams (a task switch per read), and awaiting credit or settlements: owners are called back, in
batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from holdfast import protocol
from holdfast.amqp.encoding.codec import Described, symbol, uint
from holdfast.amqp.engine.engine import Engine
from holdfast.amqp.errors import CONNECTION_FORCED, INVALID_FIELD
from holdfast.amqp.events import (
    AuthenticationWork,
    ConnectionClosed,
    ConnectionOpened,
    Credit,
    Drained,
    LinkDetached,
    LinkOpened,
    Settlements,
    Transfers,
)
from holdfast.amqp.links.link import SETTLED, Link
from holdfast.amqp.links.sender_link import SenderLink
from holdfast.amqp.links.terminus import Coordinator, Source
from holdfast.amqp.transactions import LOCAL_TRANSACTIONS
from holdfast.client.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionLostError,
    HoldfastError,
    LinkRefusedError,
    ProtocolError,
    TimeoutExpiredError,
    UnreachableError,
    UnsupportedError,
    link_error,
)
from holdfast.client.start_position import Start
from holdfast.client.transport.address import Address, told_addresses
from holdfast.client.transport.cluster_identity import Identity
from holdfast.client.transport.links import (
    ClientLink,
    Receiver,
    ReceiverOwner,
    Sender,
    SenderOwner,
)
from holdfast.client.transport.security.credentials import Security
from holdfast.client.transport.security.sasl_login import ASKS_FOR_LOGIN, login_of
from holdfast.client.waits.suspend_aware_timeout import Patience
from holdfast.records.record_batch import OLDEST_VERSION, VERSION, agreed_version

NO_TLS_THERE = "is it a port for TLS, and does the node take this client's certificate?"
LOGIN_ADVICE = "log in as a user (--user and --password-file, or user and password), by a token or by a certificate"
NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)
CLOSE_BOUND_S = 2.0  # for the peer's answer to our close; after it the socket is simply shut
STOOD_STILL_S = 5.0  # a process that did nothing for so long may have been taken for gone
OUTPUT_LIMIT_BYTES = 1 << 20  # encoded and not yet taken by the socket: above it senders wait
MAX_FRAME_BYTES = 64 * 1024  # one frame for the usual message; the peer's own limit may be smaller


class ClientConnection(asyncio.Protocol):
    """Made by `ClientConnection.open`."""

    def __init__(self, address: Address, engine: Engine) -> None:
        self.address = address
        self.other_nodes: Sequence[Address] | None = None
        """Nodes of the cluster that the node told of when it opened. None: it tells of none, as version 0.1.0."""
        self.tls: ssl.SSLObject | None = None
        self._working: asyncio.Task[None] | None = None
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._links: dict[Link, ClientLink] = {}
        self.on_left: Callable[[], None] | None = None  # the node ended it by force, or without a word
        self.on_told: Callable[[Sequence[Address]], None] | None = None  # of the other nodes, once more as it stops
        self.on_stood_still: Callable[[float], None] | None = None  # for so many seconds this process did nothing
        self.on_lost: Callable[[HoldfastError], None] | None = None  # it is gone, for whatever reason but ours
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._error: HoldfastError | None = None
        self._closing = False  # by us
        self._writable = True
        self._flush_scheduled = False
        self._tick: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- life

    @staticmethod
    async def open(
        address: Address,
        *,
        container_id: str = "",
        desired_capabilities: Sequence[str] = (),
        idle_timeout_s: float = 10.0,
        bound_s: float = 5.0,
        security: Security | None = None,
    ) -> ClientConnection:
        """Connect and open, or raise `UnreachableError`, `ProtocolError` or `AuthenticationError` within `bound_s`."""
        security = security or Security()
        made: list[ClientConnection] = []
        context = security.context()
        greeted = address.hostname or address.host
        engine = Engine(
            "client",
            container_id=container_id or f"holdfast-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            hostname=greeted,
            max_frame_size=MAX_FRAME_BYTES,
            idle_timeout_s=idle_timeout_s,
            desired_capabilities=tuple(desired_capabilities),
            sasl=login_of(security, lambda: made[0].tls, greeted, address.port),
        )
        connection = ClientConnection(address, engine)
        made.append(connection)
        loop = asyncio.get_running_loop()
        try:
            async with Patience(bound_s):
                await loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=greeted if context is not None else None,
                )
                await connection._opened
            if protocol.OPEN_NODES in engine.remote_properties:
                connection.other_nodes = told_addresses(engine.remote_properties[protocol.OPEN_NODES], address)
        except TimeoutError:
            connection._abort()
            raise UnreachableError(f"{address} did not answer within {bound_s:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"{address} is not believed to be {greeted}: {error.verify_message}",
                advice="give the file of the authority that signed its certificate (ca), or the name that it is for",
            ) from error
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS with {address} failed: {error.reason or error}", advice=NO_TLS_THERE) from error
        except (socket.gaierror, UnicodeError) as error:
            passing = isinstance(error, socket.gaierror) and error.errno not in NO_SUCH_NAME
            raise UnreachableError(
                f"{address} cannot be reached: no host {address.host!r} is found",
                advice="try again" if passing else "correct the host's name",
                retriable=passing,
            ) from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UnreachableError(f"{address} cannot be reached: {reason}") from error
        except BaseException:
            connection._abort()
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        return self._closing or self._error is not None or self._closed.done()

    async def close(self) -> None:
        """Say goodbye and shut the socket, with a bound. Idempotent; never raises."""
        if self._transport is None or self._closed.done():
            return
        self._closing = True
        for client_link in list(self._links.values()):
            client_link.ended(ConnectionLostError(f"the connection to {self.address} was closed here"))
        self._links.clear()
        self._engine.close()
        self._flush()
        try:
            await asyncio.wait({self._closed}, timeout=CLOSE_BOUND_S)
        finally:  # also if the caller is cancelled: nobody else would shut it
            if not self._closed.done():
                self._abort()

    def _abort(self) -> None:
        self._opened.cancel()  # its opener has given up, and does not hear how it ends
        if self._transport is not None:
            self._transport.abort()
        if self._tick is not None:
            self._tick.cancel()

    # ---------------------------------------------------------------- links

    async def attach_sender(
        self,
        address: str,
        partition: str | None,
        owner: SenderOwner,
        *,
        bound_s: float,
        identity: Mapping[str, Any] | None = None,
        which: Identity | None = None,
    ) -> Sender:
        """Attach a sending link; raises the node's refusal, a redirect included, as a typed error. `identity`: an
        idempotent producer's, as link properties. `which`: the log that is meant. To a partition record batches go;
        where none is named, other messages."""
        self._check_open()
        properties = _partition_property(partition) | ({} if which is None else which.properties())
        if partition is not None:
            properties[protocol.RECORD_BATCHES] = uint(VERSION)
        desired: tuple[str, ...] = ()
        if identity is not None:
            properties, desired = {**properties, **identity}, (protocol.IDEMPOTENT_CAPABILITY,)
        source = Source(outcomes=protocol.OUTCOMES)
        link = self._engine.open_sender(address, source=source, properties=properties, desired_capabilities=desired)
        sender = Sender(self, link, owner, _name(address, partition))
        await self._attached(sender, bound_s)
        if which is not None:
            which.learn(sender.properties)
        if partition is not None:
            told = sender.properties.get(protocol.RECORD_BATCHES)
            if agreed_version(told) is None:
                sender.abandon()
                raise UnsupportedError(
                    f"{sender.what}: the node does not take record batches of version {OLDEST_VERSION} to {VERSION} "
                    f"(it says {told!r})",
                    advice="install the client of the node's release, or use another AMQP client for that node",
                )
        return sender

    async def attach_coordinator(
        self, properties: Mapping[str, Any], owner: SenderOwner, *, bound_s: float, which: Identity
    ) -> Sender:
        """Attach the control link of transactions on this connection; raises the node's refusal as a typed error.
        `which`: the cluster that is meant."""
        self._check_open()
        target = Coordinator((LOCAL_TRANSACTIONS,))
        said = {**properties, **which.properties()}
        link = self._engine.open_sender(target, source=Source(outcomes=protocol.OUTCOMES), properties=said)
        sender = Sender(self, link, owner, "transaction coordinator")
        await self._attached(sender, bound_s)
        which.learn(sender.properties)
        return sender

    async def attach_receiver(
        self,
        address: str,
        partition: str | None,
        start: Start | None,
        owner: ReceiverOwner,
        *,
        bound_s: float,
        dynamic: bool = False,
        name: str | None = None,
        properties: Mapping[str, Any] | None = None,
        for_good: bool = True,
        where: str | None = None,
        uncommitted: bool = False,
        which: Identity | None = None,
    ) -> Receiver:
        """Attach a receiving link without credit. `dynamic`: the node makes up the source address. `properties`: what
        a member of a group says of itself. `for_good`: see `ClientLink`. `where`: which events, a condition in SQL.
        `uncommitted`: events of transactions that are open or were rolled back as well. `which`: the log that is
        meant."""
        self._check_open()
        wanted = start.to_filter() if start is not None else {}
        if uncommitted:
            wanted[protocol.ISOLATION_FILTER] = Described(symbol(protocol.ISOLATION_FILTER), protocol.UNCOMMITTED)
        if where is not None:
            wanted[protocol.EVENT_FILTER] = Described(symbol(protocol.EVENT_FILTER), where)
        source = Source(address=None if dynamic else address, dynamic=dynamic, filter=wanted)
        said = {**_partition_property(partition), **(properties or {}), **({} if which is None else which.properties())}
        if name is not None:
            self._flush()  # proton writes attaches before detaches: a link of this name that was given up leaves first
        link = self._engine.open_receiver(source, name=name, properties=said, snd_settle_mode=SETTLED)
        receiver = Receiver(self, link, owner, _name(address, partition))
        receiver.for_good = for_good
        try:
            await self._attached(receiver, bound_s)
        except LinkRefusedError as error:
            if where is None or error.condition != INVALID_FIELD:
                raise
            raise ConfigurationError(
                f"the filter {where!r} is refused: {error}",
                advice="correct it; the language is in docs/clients/filters.md",
            ) from error
        if which is not None:
            which.learn(receiver.properties)
        granted = {str(name) for name in getattr(link.remote_source, "filter", None) or {}}
        if set(wanted) - granted:
            receiver.abandon()
            raise ProtocolError(
                f"{receiver.what}: the node does not know the filter {', '.join(sorted(set(wanted) - granted))}",
                advice="connect to a Holdfast node, or to another that offers AMQP_EVENT_STREAMS_V1_0",
            )
        return receiver

    def _check_open(self) -> None:
        if self.is_closed:
            error = self._error or ConnectionLostError(f"the connection to {self.address} is closed")
            raise error.with_traceback(None)  # kept, and raised to each caller: else it would keep their frames

    async def _attached(self, client_link: ClientLink, bound_s: float) -> None:
        self._links[client_link.link] = client_link
        self._flush()
        try:
            async with Patience(bound_s):
                await client_link.opened
        except TimeoutError:
            client_link.abandon()
            raise TimeoutExpiredError(f"{client_link.what}: no answer to the attach within {bound_s:g} s") from None
        except BaseException:
            client_link.abandon()
            raise

    def forget(self, link: Link) -> None:
        self._links.pop(link, None)

    # ---------------------------------------------------------------- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self.tls = transport.get_extra_info("ssl_object")
        self._engine.open()
        self._tick_now()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._engine.receive(data)
        self._handle_events()
        self._flush()

    def eof_received(self) -> bool:
        self._left()
        if not self._engine.closed:
            # A proxy without a node behind it, a node that is being killed: no word against what was said until then.
            gone = f"{self.address} ended the connection without a word"
            self._error = self._error or (
                ConnectionLostError(gone) if self._opened.done() else self._gone_before_open()
            )
        self._engine.receive_eof()
        self._handle_events()
        self._flush()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error is not None else ""
        if not self._engine.closed:
            self._engine.receive_eof()
        self._left()
        self._error = self._error or ConnectionLostError(f"the connection to {self.address} broke{reason}")
        if self.on_lost is not None and not self._closing:
            self.on_lost(self._error)
        self._handle_events()
        self._end_links(self._error)
        if self._tick is not None:
            self._tick.cancel()
        if not self._opened.done():
            # With TLS 1.3 a node refuses a certificate only after the handshake has ended here.
            told = f"{self.address} ended TLS: {error.reason or error}" if isinstance(error, ssl.SSLError) else ""
            self._opened.set_exception(AuthenticationError(told) if told else self._gone_before_open())
        if not self._closed.done():
            self._closed.set_result(None)
        self._engine.free()

    def _left(self) -> None:
        if self._error is None and not self._closing and self.on_left is not None:
            self.on_left()

    def _gone_before_open(self) -> UnreachableError:
        return UnreachableError(f"{self.address} closed the connection while it was opened")

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._flush()

    # ---------------------------------------------------------------- events

    def _handle_events(self) -> None:
        for event in self._engine.events():
            match event:
                case Transfers():
                    if (found := self._links.get(event.link)) is not None:
                        found.owner.on_transfers(event.payloads)
                    if event.deliveries:
                        event.link.settle(event.deliveries)
                case Settlements():
                    if isinstance(found := self._links.get(event.link), Sender):
                        found.on_outcomes(event.outcomes)
                case Credit():
                    self._on_credit(event.link)
                case LinkOpened():
                    if (found := self._links.get(event.link)) is not None and not found.opened.done():
                        found.opened.set_result(None)
                case LinkDetached():
                    self._on_detached(event)
                case Drained():
                    if isinstance(found := self._links.get(event.link), Receiver):
                        found.drained()
                case ConnectionOpened():
                    if not self._opened.done():
                        self._opened.set_result(None)
                case ConnectionClosed():
                    self._on_closed(event)
                case AuthenticationWork():
                    self._working = self._loop.create_task(self._authenticate(event.work))

    async def _authenticate(self, work: Callable[[], object]) -> None:
        try:
            result = await self._loop.run_in_executor(None, work)
        except ValueError as problem:
            result = problem
        self._engine.authenticated(result)
        self._handle_events()
        self._flush()

    def _on_credit(self, link: SenderLink) -> None:
        if isinstance(found := self._links.get(link), Sender) and found.opened.done():
            found.on_credit()
        if link.drain:
            link.drained()

    def _on_detached(self, event: LinkDetached) -> None:
        found = self._links.pop(event.link, None)
        if found is None:
            return
        error = event.error
        if error is None:
            found.ended(link_error(None, "the node ended the link", None, found.what))
        else:
            found.ended(link_error(error.condition, error.description, dict(error.info), found.what))

    def _on_closed(self, event: ConnectionClosed) -> None:
        error = event.error
        if error is not None and protocol.OPEN_NODES in error.info and self.on_told is not None:
            with contextlib.suppress(ProtocolError):  # it has said all that matters
                self.on_told(told_addresses(error.info[protocol.OPEN_NODES], self.address))
        if error is None or error.condition == CONNECTION_FORCED:
            self._left()
        if self._error is None:
            self._error = (
                self._closing_error(error.condition, error.description or error.condition)
                if error is not None
                else (ConnectionLostError(f"{self.address} closed the connection"))
            )
        if not self._opened.done():
            self._opened.set_exception(self._error)
        self._end_links(self._error)
        self._flush()
        self._shut()

    def _closing_error(self, condition: str, text: str) -> HoldfastError:
        if condition in ("amqp:connection:framing-error", "amqp:decode-error") and not self._opened.done():
            return ProtocolError(f"{self.address} does not speak AMQP 1.0 to us: {text}")
        if condition == "amqp:unauthorized-access":
            # A client that was let in once may be again: a token has ended, and the next one is asked for.
            advice = LOGIN_ADVICE if text == ASKS_FOR_LOGIN else None
            return AuthenticationError(f"{self.address}: {text}", advice=advice, retriable=self._opened.done())
        if condition == "amqp:not-allowed":
            return LinkRefusedError(f"{self.address} refuses the connection: {text}", condition=condition)
        return ConnectionLostError(f"{self.address} ended the connection: {text}")

    def _end_links(self, error: HoldfastError) -> None:
        links, self._links = list(self._links.values()), {}
        for client_link in links:
            client_link.ended(error)

    # ---------------------------------------------------------------- output

    def beat(self) -> None:
        """Let the node hear that this process lives, though there is nothing to say."""
        if not self.is_closed:
            self._engine.beat()
            self.flush_soon()

    @property
    def congested(self) -> bool:
        """True if the socket is behind: sending more would only fill memory."""
        return not self._writable or self._engine.pending_output > OUTPUT_LIMIT_BYTES

    def flush_soon(self) -> None:
        """Write once in this loop turn, after everything else that happens in it."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        transport, engine = self._transport, self._engine
        if transport is None or transport.is_closing():
            return
        was_congested = self.congested
        while self._writable and (data := engine.data_to_send()):
            transport.write(data)
        if was_congested and not self.congested:
            self._wake_senders()
        if engine.output_done:
            self._shut()

    def _shut(self) -> None:
        """Close the socket after what was written. Only once: an asyncio transport of TLS that is closed a second
        time lets go of its own TLS, and raises at `abort`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def _wake_senders(self) -> None:
        for client_link in list(self._links.values()):
            if isinstance(client_link, Sender) and client_link.opened.done():
                client_link.on_credit()

    def _tick_now(self, due_s: float | None = None) -> None:
        """`due_s`: when it was to be, by a clock that goes on while the machine sleeps."""
        late_s = 0.0 if due_s is None else since_boot_s() - due_s
        if late_s >= STOOD_STILL_S and self.on_stood_still is not None:
            self.on_stood_still(late_s)
        deadline_s = self._engine.tick(self._loop.time())
        self._handle_events()
        self._flush()
        if deadline_s is not None and not self.is_closed:
            due_s = since_boot_s() + deadline_s - self._loop.time()
            self._tick = self._loop.call_at(deadline_s, self._tick_now, due_s)


def since_boot_s() -> float:
    """Seconds since boot, where there is such a clock: it counts the sleep of a machine, and nobody sets it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _partition_property(partition: str | None) -> dict[str, Any]:
    return {} if partition is None else {protocol.LINK_PARTITION: symbol(partition)}


def _name(address: str, partition: str | None) -> str:
    """Name of a link, for people."""
    log = address.removesuffix(protocol.INFO_SUFFIX)
    return log if partition is None else f"{log}, partition {partition}"
