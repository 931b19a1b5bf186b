"""Transactional ids that are held at this node.

The problem: a client may name its transactional id, and then there is one holder of it in the cluster; most stock
clients name none, and want transactions as they come. Ids without a client's name are the node's own, and are used
again and again, so that a coordinator knows only as many as were ever open at once, and not as many as there were
links.

The rule: an id that is lent out again has no transaction that could still write: its end is known, and its next pair.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from node.client_transactions.coordinator_lookup import Calls, Coordinators
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transaction import HeldTransaction
from node.client_transactions.transaction_group_member import LeaseRenewer, MemberProducer, MemberTerms
from node.client_transactions.transactional_producer import TransactionalProducer
from node.transaction_coordinator.coordinator_commands import NodeStart

log = logging.getLogger("holdfast.transactions")

OWN_PREFIX = "$node-"
"""Prefix of the node's own ids. Clients' ids do not begin with a dollar sign."""

MAX_OWN = 10_000
"""Own ids that are open at once at one node."""

MAX_TIMEOUT_MS = 15 * 60 * 1000
DEFAULT_TIMEOUT_MS = 60_000
"""Default timeout, as Kafka's."""


class TransactionManager:
    def __init__(
        self, node_id: int, calls: Calls, coordinators: Coordinators, start: Callable[[], NodeStart | None]
    ) -> None:
        """`start`: the start of this node, once it is counted. When it is gone, its open transactions are aborted."""
        self.calls = calls
        self.coordinators = coordinators
        self._node_id = node_id
        self._start = start
        self._free: dict[int, list[TransactionalProducer]] = {}  # by timeout; their next pair is known
        self._numbers = 0
        self._spare_numbers: deque[int] = deque()  # of ids that were given up, to be registered again; the oldest first
        self._held: dict[str, tuple[TransactionalProducer, Callable[[str], None]]] = {}  # named ones
        self._ending: set[asyncio.Task[None]] = set()
        self.leases = LeaseRenewer(calls)

    # ------------------------------------------------------------ ids that a client names

    async def hold(
        self, name: str, timeout_ms: int, fenced: Callable[[str], None], *, holder: str = "", succeeds: str = ""
    ) -> TransactionalProducer:
        """Hold the id for a link; earlier holders are fenced. `fenced` is called when another link of this node takes
        it. `holder`: the client's name for itself; "": a name is drawn. `succeeds`: the holder that comes back; refused
        if another holder has had the id since. Raises TransactionFailed."""
        if name.startswith("$"):
            raise TransactionFailed("invalid", f"transactional id {name!r}: choose one without a dollar sign in front")
        group = await self.coordinators.group_of(name)
        producer = TransactionalProducer(
            self.calls, name, group, timeout_ms, holder=holder, succeeds=succeeds, at=self._start()
        )
        await producer.register()
        earlier = self._held.get(name)
        assert producer.pair is not None
        if earlier is not None and (earlier[0].pair or producer.pair) > producer.pair:
            # pairs only rise: the other one came later, and was answered first
            raise TransactionFailed("fenced", f"another link of this node has {name!r} now")
        self._held[name] = (producer, fenced)
        if earlier is not None and earlier[0].holder != producer.holder:  # it is no other attempt of the same attach
            earlier[0].fenced = earlier[0].fenced or f"another link of this node has {name!r} now"
            earlier[1](earlier[0].fenced)
        return producer

    def let_go(self, producer: TransactionalProducer) -> None:
        """Release an id whose link is gone. The id keeps its pair at the coordinator."""
        held = self._held.get(producer.name)
        if held is not None and held[0] is producer:
            del self._held[producer.name]
        if isinstance(producer, MemberProducer):
            self.leases.let_go(producer)
            if producer.is_left:
                self._soon(self._leave(producer))

    # ------------------------------------------------------------ members of groups

    async def join(self, terms: MemberTerms) -> MemberProducer:
        """Join a transaction group; the member's lease is kept from here (`leases.keep`) until it is released. Raises
        TransactionFailed."""
        producer = MemberProducer(self.calls, await self.coordinators.group_of(terms.writer), terms)
        await producer.join()
        return producer

    async def _leave(self, producer: MemberProducer) -> None:
        """Abort a member whose client has left before it began."""
        assert producer.pair is not None
        try:
            await producer.end(producer.pair, commit=False)
        except TransactionFailed as error:
            log.info("member %s is over by itself: %s", producer.member, error.detail)

    # ------------------------------------------------------------ transactions

    async def begin(self, producer: TransactionalProducer) -> HeldTransaction:
        """Begin a transaction of a held id. Raises TransactionFailed."""
        return HeldTransaction(self.calls, producer, await producer.ready())

    # ------------------------------------------------------------ ids that nobody names

    async def begin_anonymous(self, timeout_ms: int) -> HeldTransaction:
        """Begin a transaction of an own id. Raises TransactionFailed."""
        free = self._free.get(timeout_ms, [])
        producer = free.pop() if free else await self._own(timeout_ms)
        assert producer.pair is not None
        return HeldTransaction(self.calls, producer, producer.pair)

    async def _own(self, timeout_ms: int) -> TransactionalProducer:
        number = self._number()
        name = f"{OWN_PREFIX}{self._node_id}-{number}"
        try:
            group = await self.coordinators.group_of(name)
            producer = TransactionalProducer(self.calls, name, group, timeout_ms, at=self._start())
            await producer.register()
        except BaseException:
            self._spare_numbers.append(number)
            raise
        return producer

    def _number(self) -> int:
        """A new number while there are any. An id may have been given up since a coordinator or a partition is down,
        and that may still be so."""
        if self._numbers < MAX_OWN:
            self._numbers += 1
            return self._numbers - 1
        for free in self._free.values():  # of other timeouts
            if free:
                self._spare_numbers.append(_number_of(free.pop()))
                break
        if not self._spare_numbers:
            raise TransactionFailed("too-many", f"{MAX_OWN} transactions are open at this node: end some of them")
        return self._spare_numbers.popleft()

    def give_back(self, transaction: HeldTransaction) -> None:
        """Take an own id back: its transaction has ended."""
        self._soon(self._give_back(transaction))

    async def _give_back(self, transaction: HeldTransaction) -> None:
        producer = transaction.producer
        try:
            pair = await producer.ready()
            if pair == transaction.pair and transaction.takes_part:
                raise TransactionFailed("unavailable", f"it is not known how {pair} ended")
        except TransactionFailed as error:
            log.info("transactional id %r is registered anew: %s", producer.name, error.detail)
            self._spare_numbers.append(_number_of(producer))
        else:
            self._free.setdefault(producer.timeout_ms, []).append(producer)

    # ------------------------------------------------------------ ends that nobody waits for

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Close as the node stops; the coordinator ends open transactions when it finds this node gone."""
        await self.leases.close()
        for task in list(self._ending):
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)


def _number_of(producer: TransactionalProducer) -> int:
    """Number of an id that is the node's own."""
    return int(producer.name.rpartition("-")[2])
