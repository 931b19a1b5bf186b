"""Network of a client: from "a link to this address" to an open link, whichever nodes are up and lead.

Problem: the servers that a program was given are only where it begins; partitions live where their leaders are,
leaders move, and nodes die in the middle of it.
Rules never broken: every attempt has a bound, and the whole has a deadline; a redirect is followed at most `MAX_HOPS`
times in a row (`redirects`).
Rejected: a background task that keeps a map of leaders fresh. The nodes know; asking them when it matters is never
stale.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from holdfast import protocol
from holdfast.client.callbacks import FAULTS, report
from holdfast.client.errors import (
    ClosedError,
    ConfigurationError,
    ConnectionLostError,
    HoldfastError,
    LinkRedirected,
    LinkRefusedError,
    NotFoundError,
    PartitionOwnedError,
    TimeoutExpiredError,
    UnreachableError,
)
from holdfast.client.one_process import OneProcess
from holdfast.client.start_position import Start
from holdfast.client.transport.address import Address, named_servers
from holdfast.client.transport.cluster_identity import Identity
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.links import (
    Receiver,
    ReceiverOwner,
    Sender,
    SenderOwner,
)
from holdfast.client.transport.node_watch import NodeWatch
from holdfast.client.transport.redirects import MAX_HOPS, Redirects
from holdfast.client.transport.security.credentials import Security
from holdfast.client.waits.close_once import CloseOnce, heard
from holdfast.client.waits.suspend_aware_timeout import Patience

T = TypeVar("T")

log = logging.getLogger("holdfast.client")

CONNECT_BOUND_S = 5.0  # TCP and AMQP open; a host that is gone without a word is given up after it
ATTACH_BOUND_S = 15.0  # a node holds an attach up to 10 s while a partition has no leader
NOT_FOUND_GRACE_S = 1.0  # a log created a moment ago may be unknown yet to the node asked
SUSPECT_S = 1.0  # an address that failed is passed over for so long if there is another
LEFT_S = 5.0  # the same for one that ended a connection by force or without a word: it stops, died, or is cut off
SILENT_S = 30.0  # the same for one that does not answer, or at which a call's whole time passed: it is gone, or cut off
BACKOFF_FIRST_S = 0.02  # an election takes 0.4 s at best: a few quick attempts are cheap
BACKOFF_MOST_S = 0.5
PACE_S = 1.0  # between two lines of a kind that a client logs
WARN_S = 1.0  # somebody waits for so long: a warning, and perhaps another one each time that it has doubled
SAME_S = 8.0  # after such a wait a warning may say the same as the last one
MAX_IDLE_TIMEOUT_S = 1_000_000  # milliseconds travel in 32 bits


class Backoff:
    """Growing pauses with jitter, so that many clients do not come back in step."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def reset(self) -> None:
        self._next_s = 0.0

    async def wait(self, most_s: float = BACKOFF_MOST_S) -> None:
        """Pause: not at first, then from 20 ms doubling to half a second."""
        if self._next_s > 0:
            await asyncio.sleep(min(most_s, self._next_s * random.uniform(0.75, 1.25)))
        self._next_s = min(BACKOFF_MOST_S, max(BACKOFF_FIRST_S, self._next_s * 2))


class PacedLog:
    """Log of a client's way through failures: at most one line a second of each kind.

    A program that waits for a failover looks as one that hangs; a client with many partitions and no leader would fill
    a disk with what it tries.
    """

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}  # by the kind of line, which is its format
        self._left_out: dict[str, int] = {}

    def say(self, line: str, *values: object, level: int = logging.INFO) -> None:
        """Log a line. `line`: as `logging` formats it. Lines of one format are of one kind."""
        if not log.isEnabledFor(level):
            return
        now_s = time.monotonic()
        last_s = self._last_s.get(line)
        if last_s is not None and now_s - last_s < PACE_S:
            self._left_out[line] = self._left_out.get(line, 0) + 1
            return
        self._last_s[line] = now_s
        left_out = self._left_out.pop(line, 0)
        try:
            log.log(level, line + (f" ({left_out} more lines like this were left out)" if left_out else ""), *values)
        except FAULTS as problem:  # of a handler, or filter, of the program
            report("of logging", problem)

    def given_up(self, events: int, what: str, why: object) -> None:
        """Log that events of a producer were given up: they may be stored, or not."""
        self.say("%s: %d events were given up: %s", what, events, why, level=logging.WARNING)


class Waiting:
    """A wait for the cluster, which is told of while it lasts."""

    def __init__(self, lines: PacedLog, what: str) -> None:
        self.why: object = None  # what failed last, or has not come; None: a node works on it
        self._lines, self._what, self._waited_s, self._said = lines, what, WARN_S, ""

    def __enter__(self) -> Waiting:
        self._timer = asyncio.get_running_loop().call_later(WARN_S, self._warn)
        return self

    def _warn(self) -> None:
        why = "" if self.why is None else _beside(self._what, self.why)
        if why and (why != self._said or self._waited_s >= SAME_S):
            line = "%s: still trying after %g s: %s"
            self._lines.say(line, self._what, self._waited_s, why, level=logging.WARNING)
            self._said = why
        self._timer = asyncio.get_running_loop().call_later(self._waited_s, self._warn)
        self._waited_s *= 2

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


@dataclass(frozen=True)
class NetworkOptions:
    """Options of reaching the cluster."""

    follow_redirects: bool = True  # False: ask for none, the entry node serves every partition as a gateway
    idle_timeout_s: float = 10.0  # a node silent for so long counts as gone (nodes send heartbeats when idle)
    container_id: str = ""  # how the node's log names this client; made up when empty
    # Give up after so long when every server was tried and none was ever reached: probably the address is wrong, or
    # the cluster is not up. None: as patient as with a cluster that was there before.
    first_contact_s: float | None = None
    security: Security = field(default_factory=Security)  # TLS, and who this client is

    def check(self) -> None:
        if not isinstance(self.idle_timeout_s, int | float) or not 0 < self.idle_timeout_s <= MAX_IDLE_TIMEOUT_S:
            raise ConfigurationError(
                f"idle_timeout_s must be a time in seconds from 0 to {MAX_IDLE_TIMEOUT_S}, not {self.idle_timeout_s!r}"
            )
        if not isinstance(self.container_id, str):
            raise ConfigurationError(f"container_id is a string, not {self.container_id!r}")
        self.security.check()


class Network(OneProcess):
    """The connections of one client, by address, and the ways to its links."""

    def __init__(self, servers: str | Sequence[str], options: NetworkOptions | None = None) -> None:
        self.options = options or NetworkOptions()
        if not isinstance(self.options, NetworkOptions):
            raise ConfigurationError(f"{self.options!r} is not a NetworkOptions")
        self.options.check()
        given = named_servers(servers)
        self._configured = [Address.parse(name) for name in given]
        if any(name.startswith("amqps:") for name in given) and not self.options.security.uses_tls:
            raise ConfigurationError(
                "amqps:// asks for TLS", advice="say so: Security(tls=True) or (ca=...), --tls or --ca"
            )
        self.log_lines = PacedLog()
        self.cluster = Identity(protocol.LINK_CLUSTER)
        self._logs: dict[str, Identity] = {}
        self._redirects = Redirects(self.log_lines.say, follow=self.options.follow_redirects)
        self._nodes: Sequence[Address] = ()  # those that a node has told of, where its own address was not enough
        self._suspect_until: dict[tuple[str, int], float] = {}  # by host and port, wherever the address came from
        self._opening: dict[Address, asyncio.Task[ClientConnection]] = {}
        self._met = False  # a server has been reached once
        self._nameless: set[Address] = set()  # their host's name is no host's
        self._untried = set(self._configured)
        self._closed = False
        self._watch = NodeWatch(self._attach_watch, self._hear_of_nodes, self.log_lines.say)
        self._release = CloseOnce(self._let_go, "close connections")

    # ---------------------------------------------------------------- links

    async def attach_sender(
        self,
        address: str,
        partition: str,
        owner: SenderOwner,
        *,
        deadline_s: float,
        hint: HoldfastError | None = None,
        identity: Mapping[str, Any] | None = None,
    ) -> Sender:
        """Attach a link that sends to a partition of a log. `deadline_s` is a time of the running loop. `identity`: see
        `ClientConnection.attach_sender`."""

        what, begun_s = _link_to(address, partition), asyncio.get_running_loop().time()

        async def attach(connection: ClientConnection, bound_s: float) -> Sender:
            sender = await connection.attach_sender(
                address, partition, owner, bound_s=bound_s, identity=identity, which=self.log(address)
            )
            self._found(what, connection, begun_s if hint is not None else None)
            return sender

        return await self._reach(attach, what, deadline_s, hint)

    async def attach_receiver(
        self,
        address: str,
        partition: str | None,
        start: Start | None,
        owner: ReceiverOwner,
        *,
        deadline_s: float,
        hint: HoldfastError | None = None,
        name: str | None = None,
        properties: Mapping[str, Any] | None = None,
        attach_bound_s: float = ATTACH_BOUND_S,
        for_good: bool = True,
        where: str | None = None,
        uncommitted: bool = False,
        owned_bound_s: float | None = None,
    ) -> Receiver:
        """Attach a link that receives from a log (or one partition of it), all or those for which `where` is true.
        `name`, `properties`, `for_good`: of a member of a group. `uncommitted`: see `ClientConnection.attach_receiver`.
        `owned_bound_s`: give up when somebody else had the partition for so long."""

        what, begun_s = _link_to(address, partition), asyncio.get_running_loop().time()

        async def attach(connection: ClientConnection, bound_s: float) -> Receiver:
            receiver = await connection.attach_receiver(
                address, partition, start, owner,
                bound_s=bound_s, name=name, properties=properties, for_good=for_good, where=where,
                uncommitted=uncommitted, which=self.log(address),
            )  # fmt: skip
            self._found(what, connection, begun_s if hint is not None else None)
            return receiver

        # A link that names no partition waits for one that becomes free.
        return await self._reach(attach, what, deadline_s, hint, attach_bound_s, owned_bound_s, partition is None)

    def _found(self, what: str, connection: ClientConnection, lost_s: float | None) -> None:
        """Note that a link is open. `lost_s`: the one before it was lost then."""
        if self.options.follow_redirects:
            self.log_lines.say("%s: leader found at %s", what, connection.address)
        else:
            self.log_lines.say("%s: %s serves it as a gateway", what, connection.address)
        if lost_s is not None:
            took_s = asyncio.get_running_loop().time() - lost_s
            self.log_lines.say("%s: the failover to %s took %.2f s", what, connection.address, took_s)

    def log(self, address: str) -> Identity:
        """Identity of the log that the client means by an address."""
        return self._logs.setdefault(address, Identity(protocol.LINK_LOG))

    async def ask(
        self, question: Callable[[ClientConnection, float], Awaitable[T]], what: str, *, timeout_s: float
    ) -> T:
        """Put a question to any server; again to another one while it fails in a way that may pass."""
        return await self._reach(question, what, asyncio.get_running_loop().time() + timeout_s, None)

    async def _reach(
        self,
        attempt: Callable[[ClientConnection, float], Awaitable[T]],
        what: str,
        deadline_s: float,
        hint: HoldfastError | None,
        attach_bound_s: float = ATTACH_BOUND_S,
        owned_bound_s: float | None = None,
        takes_turns: bool = False,
    ) -> T:
        """Repeat an attempt at one node after another. `takes_turns`: that a node refuses is no trouble, somebody else
        has what is wanted."""
        loop = asyncio.get_running_loop()
        patience, backoff, hops = Patience(deadline_s - loop.time()), Backoff(), 0
        if hint is not None:
            self._redirects.forget(what)  # the link that was there failed
        target = (
            self._redirects.follow(hint, what) if isinstance(hint, LinkRedirected) else self._redirects.target(what)
        )
        last: HoldfastError | None = hint
        owned_since_s = loop.time()
        owned: HoldfastError | None = None  # says more than what came after it, redirects and lost patience
        said: dict[Address, HoldfastError] = {}  # the last word of each node that was there when it was last tried
        with Waiting(self.log_lines, what) as waiting:
            while patience.left_s > 0:
                address = target or self._entry()
                try:
                    async with patience:
                        # What nobody has heard of yet is soon known, or not there.
                        no_trouble = isinstance(last, LinkRefusedError if takes_turns else NotFoundError)
                        trouble = None if no_trouble else last
                        waiting.why = trouble or f"{address} has not answered yet"
                        connection = await self.connection(address)
                        waiting.why = None if takes_turns else trouble
                        return await attempt(connection, min(patience.left_s, attach_bound_s))
                except LinkRedirected as redirect:
                    last, hops = redirect, hops + 1
                    target = self._redirects.follow(redirect, what)
                    if hops <= MAX_HOPS:
                        continue
                    hops, target = 0, None
                    self._redirects.forget(what)
                except HoldfastError as error:
                    young = patience.spent_s < NOT_FOUND_GRACE_S
                    if not self._may_pass(address, error) and not (isinstance(error, NotFoundError) and young):
                        raise
                    last, target = error, None
                    said.pop(address, None)
                    if not isinstance(error, UnreachableError):
                        said[address] = error
                    self.log_lines.say("%s: trying again, since %s", what, error)
                    if isinstance(error, PartitionOwnedError):
                        owned_since_s = owned_since_s if owned is not None else loop.time()
                        owned = error
                        if owned_bound_s is not None and loop.time() - owned_since_s > owned_bound_s:
                            break
                    self._redirects.forget(what)
                    if not isinstance(error, NotFoundError):
                        self._suspect(address)
                    if self._hopeless(patience.spent_s):
                        break
                except TimeoutError:  # the caller's patience ended with this one: the next call begins with another
                    self._redirects.forget(what)
                    self._suspect(address, SILENT_S)
                    break
                with contextlib.suppress(TimeoutError):
                    async with patience:
                        await backoff.wait()
        if said and isinstance(last, UnreachableError):
            last = list(said.values())[-1]
        raise owned or self._too_late(what, last, patience.spent_s)

    def _may_pass(self, address: Address, error: HoldfastError) -> bool:
        """True if another attempt, perhaps at another server, may bring more."""
        if isinstance(error, UnreachableError) and not error.retriable:  # its name says no address
            self._nameless.add(address)
            return self._met or not self._nameless.issuperset(self._configured)
        return error.retriable

    def _hopeless(self, tried_s: float) -> bool:
        bound_s = self.options.first_contact_s
        return bound_s is not None and tried_s >= bound_s and not self._met and not self._untried

    @staticmethod
    def _too_late(what: str, last: HoldfastError | None, tried_s: float) -> HoldfastError:
        if isinstance(last, UnreachableError):
            return last
        reason = "no answer came" if last is None else _beside(what, last)
        advice = None if last is None or isinstance(last, ConnectionLostError) else last.advice
        return TimeoutExpiredError(f"{what}: given up after {tried_s:.3g} s: {reason}", advice=advice or None)

    # ---------------------------------------------------------------- addresses

    def prefer(self, what: str, address: Address) -> None:
        """Let `ask` ask there first, when it is told the same words; forgotten as soon as that fails."""
        self._redirects.remember(what, address)

    def _suspect(self, address: Address, for_s: float = SUSPECT_S) -> None:
        until_s = asyncio.get_running_loop().time() + for_s
        self._suspect_until[address.host, address.port] = max(until_s, self._suspected_until_s(address))

    def _suspected_until_s(self, address: Address) -> float:
        return self._suspect_until.get((address.host, address.port), 0.0)

    def _entry(self) -> Address:
        """The first server that has not just failed: configured ones in their order, then the cluster's other nodes."""
        now_s = asyncio.get_running_loop().time()
        known = [*self._configured, *self._nodes]
        for address in known:
            if self._suspected_until_s(address) <= now_s:
                return address
        return min(known, key=self._suspected_until_s)

    # ---------------------------------------------------------------- connections

    async def connection(self, address: Address) -> ClientConnection:
        """The open connection to an address; concurrent callers share one attempt."""
        if self._closed:
            raise ClosedError("the client was closed")
        task = self._opening.get(address)
        if task is not None and task.done() and not _is_open(task):
            task = None
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(address), name=f"connect {address}")
            task.add_done_callback(heard)
            self._opening[address] = task
        # Shielded: one impatient caller must not break the attempt that others wait for.
        return await asyncio.shield(task)

    async def _open(self, address: Address) -> ClientConnection:
        capabilities = (protocol.EVENT_STREAMS_CAPABILITY, protocol.LINK_REDIRECT_CAPABILITY)
        begun_s = asyncio.get_running_loop().time()
        try:
            connection = await ClientConnection.open(
                address,
                container_id=self.options.container_id,
                desired_capabilities=capabilities if self.options.follow_redirects else (),
                idle_timeout_s=self.options.idle_timeout_s,
                bound_s=CONNECT_BOUND_S,
                security=self.options.security,
            )
        except UnreachableError:
            if asyncio.get_running_loop().time() - begun_s > SUSPECT_S:
                self._suspect(address, SILENT_S)  # else two such hosts, tried in turn, keep it from all other servers
            raise
        finally:
            self._untried.discard(address)
        self._met = True
        if self.options.follow_redirects:
            connection.on_told = partial(self._hear_of_nodes, address)
            if connection.other_nodes is not None:
                self._hear_of_nodes(address, connection.other_nodes)
                self._watch.begin()
        connection.on_left = partial(self._suspect, address, LEFT_S)
        connection.on_stood_still = self._stood_still
        connection.on_lost = partial(self.log_lines.say, "a connection was lost: %s")
        return connection

    def _hear_of_nodes(self, by: Address, others: Sequence[Address]) -> None:
        self._nodes = (by, *others)
        self.log_lines.say("%s tells of %s", by, ", ".join(map(str, others)) or "no others", level=logging.DEBUG)

    async def _attach_watch(self, owner: ReceiverOwner) -> Receiver:
        """Attach a link that tells of nodes, on a connection that is there if one is, else to any node: the one that
        has failed least lately, and none is the first for all clients."""
        opened = [task.result() for task in self._opening.values() if task.done() and _is_open(task)]
        there = [one.address for one in opened if one.other_nodes is not None]
        known = there or [*self._configured, *self._nodes]
        address = min(random.sample(known, len(known)), key=self._suspected_until_s)
        try:
            connection = await self.connection(address)
            return await connection.attach_receiver(protocol.NODES_ADDRESS, None, None, owner, bound_s=ATTACH_BOUND_S)
        except HoldfastError:
            self._suspect(address)
            raise

    def _stood_still(self, late_s: float) -> None:
        line = (
            "this process stood still for %.0f s (stopped, asleep, or its event loop was blocked): the cluster may have"
            " taken it for gone; what was decided meanwhile follows"
        )
        self.log_lines.say(line, late_s, level=logging.WARNING)

    async def close(self) -> None:
        """Close every connection; bounded, never raises for a peer's misbehaviour. Idempotent; goes on if it is
        cancelled."""
        self._closed = True
        await self._release.done()

    async def _let_go(self) -> None:
        await self._watch.close()
        tasks, self._opening = list(self._opening.values()), {}
        for task in tasks:
            if not task.done():
                task.cancel()
        opened = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in opened if isinstance(connection, ClientConnection)))


def _is_open(done: asyncio.Task[ClientConnection]) -> bool:
    return not done.cancelled() and done.exception() is None and not done.result().is_closed


def _link_to(address: str, partition: str | None) -> str:
    return f"{address}/{partition or '*'}"


def _beside(what: str, why: object) -> str:
    """The reason, without the name of what failed, which stands in front of it."""
    return str(why).removeprefix(f"{what}: ")
