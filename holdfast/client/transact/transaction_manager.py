"""Begin and end of the transactions of one producer, with their connection and their transactional id.

A transaction belongs to one connection. Connections break, and the node that gets the commit may die before it answers.

Rules:
 - the client never repeats a program's work: events are lost with their connection, and the program gets an error;
 - after a lost answer, the cluster tells the outcome of that very transaction (`commit_outcome`);
 - a fenced producer stays fenced: from its second attach on, it names the holder that it was. The node refuses it if
   another holder has taken the id since. Without that, a zombie whose connection broke would take the id back;
 - each attach has one holder name in all its tries, until one is answered. So a try that succeeded, but whose answer
   got lost, counts as this producer.

The connection announces no redirects: its node serves all partitions, as a gateway if it does not lead them. So a
producer whose transactions write to one partition moves to its leader between two transactions (`leader_affinity`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace

from holdfast.client.errors import (
    HoldfastError,
    ProducerFencedError,
    TransactionRolledBackError,
)
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.batch_queue import NO_LIMIT
from holdfast.client.transact.commit_outcome import check_committed, pair_of, unknown
from holdfast.client.transact.control_link import (
    ControlLink,
    CoordinatorWish,
    LastTransaction,
    NotSent,
    Unanswered,
)
from holdfast.client.transact.leader_affinity import Home
from holdfast.client.transact.transactional_sender import TransactionalSender
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.network import Backoff, Network
from holdfast.client.waits.close_once import CloseOnce
from holdfast.records.codec import Codec

log = logging.getLogger("holdfast.client")

COORDINATOR = "the transaction coordinator"


class TransactorSession:
    """One connection, with its control link and its senders."""

    def __init__(self, control: ControlLink, which: Network, address: str, options: ProducerOptions) -> None:
        self.control = control
        self.connection = control.connection
        self._network, self._address, self._options = which, address, options
        self._senders: dict[str, TransactionalSender] = {}
        self._attaching = asyncio.Lock()

    @property
    def ended(self) -> HoldfastError | None:
        """Reason why no transaction can go on here; None while one can."""
        return self.control.ended

    def sender(self, partition: str) -> TransactionalSender | None:
        """Return the open sender of a partition, if there is one."""
        found = self._senders.get(partition)
        return found if found is not None and found.ended is None else None

    async def attach(self, partition: str, bound_s: float) -> None:
        """Open the sender of a partition, if it is not. Raises the errors of the attach."""
        async with self._attaching:
            if self.sender(partition) is None:
                found = TransactionalSender(partition, self._options.window)
                found.link = await self.connection.attach_sender(
                    self._address, partition, found, bound_s=bound_s,
                    which=self._network.log(self._address), codec=Codec.named(self._options.compression),
                )  # fmt: skip
                found.queue.largest = found.link.max_message_size or NO_LIMIT
                if found.ended is not None:  # the link ended right after its attach
                    raise found.ended
                self._senders[partition] = found

    @property
    def is_busy(self) -> bool:
        """True while something that was asked is not answered."""
        return self._attaching.locked() or self.control.is_asked or any(sender.is_waiting for sender in self.senders)

    @property
    def senders(self) -> list[TransactionalSender]:
        return list(self._senders.values())

    async def close(self) -> None:
        """Close the connection; the node rolls back the open transaction."""
        try:
            await self.control.close()
        finally:  # even if the caller is cancelled again
            await self.connection.close()


class Transactor:
    def __init__(self, servers: str | Sequence[str], log_name: str, options: ProducerOptions) -> None:
        self.options = options
        self.fenced: ProducerFencedError | None = None
        self.last: LastTransaction | None = None
        self.member: str | None = None  # in a transaction group: the member's id on the present connection
        self._log = log_name
        self._network = Network(servers, replace(options.network, follow_redirects=False))
        self._home = Home(servers, log_name, options.network)
        self._session: TransactorSession | None = None
        self._holder: str | None = None  # name with which this producer held the id last
        self._next_holder = _drawn()
        self._attaching = asyncio.Lock()
        self._release = CloseOnce(self._let_go, "close the transactor")

    @property
    def name(self) -> str | None:
        return self.options.transactional_id

    async def hold(self) -> None:
        """Take the transactional id; the node fences its last holder and rolls back that one's open transaction."""
        await self.session(self._deadline_s())

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self.options.delivery_timeout_s

    async def session(self, deadline_s: float) -> TransactorSession:
        """Return the open session, or open a new one. Raises ProducerFencedError for good once it is fenced."""
        async with self._attaching:
            if self._session is not None and self._session.ended is None:
                return self._session
            await self.drop()
            if self.fenced is not None:
                raise self.fenced.with_traceback(None)
            wish = self.wish()

            async def attach(connection: ClientConnection, bound_s: float) -> ControlLink:
                return await ControlLink.attach(connection, wish, bound_s, self._network.cluster)

            timeout_s = deadline_s - asyncio.get_running_loop().time()
            try:
                control = await self._network.ask(attach, COORDINATOR, timeout_s=timeout_s)
            except ProducerFencedError as error:
                self.fenced = error
                raise
            self._session = TransactorSession(control, self._network, self._log, self.options)
            self.opened(self._session)
            return self._session

    def wish(self) -> CoordinatorWish:
        """Return the request for the next attach."""
        options = self.options
        return CoordinatorWish(
            self.name, options.transaction_timeout_s, self._next_holder, self._holder, options.commit_answer
        )

    def opened(self, session: TransactorSession) -> None:
        self._holder, self._next_holder = self._next_holder, _drawn()
        self.last, self.member = session.control.last, session.control.member

    async def drop(self) -> None:
        """Close the session, without waiting for answers; the node rolls back its open transaction."""
        session, self._session = self._session, None
        if session is not None:
            self._hear(session.ended)
            await session.close()

    async def close(self) -> None:
        """Close the transactor. Idempotent; it goes on even if the caller is cancelled."""
        await self._release.done()

    async def _let_go(self) -> None:
        await self._home.close()
        await self.drop()
        await self._network.close()

    def wrote(self, session: TransactorSession, partitions: Collection[str]) -> None:
        """Note that a transaction with events in these partitions was committed."""
        self._home.wrote(partitions, session.connection.address)

    async def _move(self) -> None:
        """Move to the home of the transactions, if one was found; called between two of them."""
        home = self._home.take()
        if home is not None and self._session is not None and self._session.ended is None:
            log.debug("transactions are begun at %s from now on: it leads the partition that they write to", home)
            self._network.prefer(COORDINATOR, home)
            await self.drop()

    def _hear(self, error: HoldfastError | None) -> None:
        if isinstance(error, ProducerFencedError):
            self.fenced = self.fenced or error

    # ---------------------------------------------------------------- transactions

    async def declare(self) -> tuple[TransactorSession, bytes]:
        """Begin a transaction; retry until the deadline while no node can begin one. Raises final errors at once."""
        await self._move()
        deadline_s, backoff = self._deadline_s(), Backoff()
        loop = asyncio.get_running_loop()
        while True:
            session = await self.session(deadline_s)
            try:
                return session, await session.control.declare(max(0.1, deadline_s - loop.time()))
            except asyncio.CancelledError:
                await self.drop()  # a transaction may be open there whose id we do not know; another would be refused
                raise
            except HoldfastError as error:
                self._hear(error)
                if isinstance(error, ProducerFencedError):
                    raise
                await self.drop()
                if not error.retriable or loop.time() >= deadline_s:
                    raise
            await backoff.wait(max(0.0, deadline_s - loop.time()))

    async def commit(self, session: TransactorSession, txn_id: bytes, *, empty: bool) -> None:
        """Commit a transaction. `empty`: nothing was sent under it, so nothing can be lost.

        Raises TransactionRolledBackError, ProducerFencedError (rolled back, too), or TransactionOutcomeUnknownError."""
        try:
            await session.control.discharge(txn_id, fail=False, bound_s=self.options.delivery_timeout_s)
        except NotSent as lost:
            await self.drop()
            if not empty:
                raise self._rolled_back(lost.args[0]) from lost
        except Unanswered as lost:
            await self.drop()
            if not empty:
                await self._find_out(txn_id, lost.args[0])
        except HoldfastError as error:
            self._hear(error)
            raise

    def _rolled_back(self, why: HoldfastError) -> HoldfastError:
        if isinstance(why, ProducerFencedError):
            return why
        return TransactionRolledBackError(f"the transaction was rolled back before its commit was asked for: {why}")

    async def _find_out(self, txn_id: bytes, why: HoldfastError) -> None:
        """Ask for the outcome of a commit whose answer got lost; return if it was committed, else raise."""
        pair = pair_of(txn_id)
        if self.name is None or pair is None:
            advice = None if self.name is None else "find out by what was to be written before you do the work again"
            raise unknown(f"the answer to the commit got lost ({why})", pair, advice) from why
        try:
            session = await self.session(self._deadline_s())
        except HoldfastError as error:
            self._hear(error)
            raise unknown(
                f"the answer to the commit got lost ({why}), and nobody could be asked: {error}", pair
            ) from error
        check_committed(self.name, pair, session.control.last, why)

    async def abort(self, session: TransactorSession, txn_id: bytes) -> None:
        """Roll a transaction back. After a lost answer the node rolls it back later, since no commit can follow."""
        try:
            await session.control.discharge(txn_id, fail=True, bound_s=self.options.delivery_timeout_s)
        except (NotSent, Unanswered):
            await self.drop()
        except TransactionRolledBackError:
            pass  # it was rolled back before
        except HoldfastError as error:
            self._hear(error)
            await self.drop()


def _drawn() -> str:
    return secrets.token_hex(12)
