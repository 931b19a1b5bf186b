"""Begin and end of the transactions of one producer, with their connection and their transactional id.

A transaction belongs to one connection. Connections break, and the node that gets the commit may die before it answers.

Rules:
 - the client never repeats a program's work: events are lost with their connection, and the program gets an error;
 - after a lost answer, the cluster tells at the next attach how the last transaction of the id ended. By its producer
   id and epoch it is that very one; else the outcome is unknown;
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
from typing import Any, ClassVar

from holdfast import protocol
from holdfast.amqp.encoding.codec import uint
from holdfast.client.errors import (
    HoldfastError,
    ProducerFencedError,
    TransactionOutcomeUnknownError,
    TransactionRolledBackError,
)
from holdfast.client.options import ProducerOptions
from holdfast.client.transact.leader_affinity import Home
from holdfast.client.transact.transactor_session import LastTransaction, TransactorSession, Unanswered
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.network import Backoff, Network
from holdfast.client.waits.close_once import CloseOnce

log = logging.getLogger("holdfast.client")

COORDINATOR = "the transaction coordinator"


class Transactor:
    fenced_as: ClassVar[type[HoldfastError]] = ProducerFencedError
    """Error that is raised if another holder has the id now."""

    def __init__(self, servers: str | Sequence[str], log_name: str, options: ProducerOptions) -> None:
        self.options = options
        self.fenced: ProducerFencedError | None = None
        self.last: LastTransaction | None = None
        self._log = log_name
        self._network = Network(servers, replace(options.network, follow_redirects=False))
        self._home = Home(servers, log_name, options.network)
        self._session: TransactorSession | None = None
        self._holder: str | None = None  # name with which this producer held the id last
        self._next_holder = _drawn()
        self._attaching = asyncio.Lock()
        self._release = CloseOnce(self._let_go, "close the transactor")

    @property
    def what(self) -> str:
        name = self.options.transactional_id
        return f"transactional id {name!r}" if name else "transactions"

    def properties(self) -> dict[str, Any]:
        """Properties of the attach of a control link."""
        options = self.options
        said: dict[str, Any] = {protocol.TRANSACTION_TIMEOUT: uint(max(1, round(options.transaction_timeout_s * 1000)))}
        if options.commit_answer != protocol.ANSWERED_WHEN_VISIBLE:
            said[protocol.DISCHARGE_ANSWER] = options.commit_answer
        if options.transactional_id is not None:
            said[protocol.TRANSACTIONAL_ID] = options.transactional_id
            said[protocol.TRANSACTION_HOLDER] = self._next_holder
            if self._holder is not None:
                said[protocol.TRANSACTION_SUCCEEDS] = self._holder
        return said

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
            properties = self.properties()

            async def attach(connection: ClientConnection, bound_s: float) -> TransactorSession:
                session = TransactorSession(
                    connection, self._network, self._log, self.options, what=self.what, fenced=self.fenced_as
                )
                await session.open(properties, bound_s)
                return session

            timeout_s = deadline_s - asyncio.get_running_loop().time()
            try:
                self._session = await self._network.ask(attach, COORDINATOR, timeout_s=timeout_s)
            except ProducerFencedError as error:
                self.fenced = error
                raise
            self.opened(self._session)
            return self._session

    def opened(self, session: TransactorSession) -> None:
        self._holder, self._next_holder = self._next_holder, _drawn()
        self.last = session.last

    async def drop(self) -> None:
        """Close the session, without waiting for answers; the node rolls back its open transaction."""
        session, self._session = self._session, None
        if session is not None:
            if isinstance(session.ended, ProducerFencedError):
                self.fenced = self.fenced or session.ended
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

    # ---------------------------------------------------------------- transactions

    async def declare(self) -> tuple[TransactorSession, bytes]:
        """Begin a transaction; retry until the deadline while no node can begin one. Raises final errors at once."""
        home, self._home.found = self._home.found, None
        if home is not None and self._session is not None and self._session.ended is None:
            log.debug("transactions are begun at %s from now on: it leads the partition that they write to", home)
            self._network.prefer(COORDINATOR, home)
            await self.drop()
        deadline_s, backoff = self._deadline_s(), Backoff()
        loop = asyncio.get_running_loop()
        while True:
            session = await self.session(deadline_s)
            try:
                return session, await session.declare(max(0.1, deadline_s - loop.time()))
            except asyncio.CancelledError:
                await self.drop()  # a transaction may be open there whose id we do not know; another would be refused
                raise
            except HoldfastError as error:
                await self.drop()
                if not error.retriable or loop.time() >= deadline_s:
                    raise
            await backoff.wait(max(0.0, deadline_s - loop.time()))

    async def commit(self, session: TransactorSession, txn_id: bytes, *, empty: bool) -> None:
        """Commit a transaction. `empty`: nothing was sent under it, so nothing can be lost.

        Raises TransactionRolledBackError, ProducerFencedError (rolled back, too), or TransactionOutcomeUnknownError."""
        try:
            await session.discharge(txn_id, fail=False)
        except Unanswered as lost:
            await self.drop()
            if empty:
                return
            if lost.sent:
                await self._find_out(txn_id, lost.why)
            elif isinstance(lost.why, ProducerFencedError):
                raise lost.why from lost
            else:
                text = f"the transaction was rolled back before its commit was asked for: {lost.why}"
                raise TransactionRolledBackError(text) from lost

    async def _find_out(self, txn_id: bytes, why: HoldfastError) -> None:
        """Ask for the outcome of a commit whose answer got lost (`why`); return if it was committed, else raise."""
        name, pair = self.options.transactional_id, pair_of(txn_id)
        lost = f"the answer to the commit got lost ({why})"
        if name is None or pair is None:
            advice = None if name is None else "find out by what was to be written before you do the work again"
            raise _unknown(lost, pair, advice) from why
        try:
            last = (await self.session(self._deadline_s())).last
        except HoldfastError as error:
            raise _unknown(f"{lost}, and nobody could be asked: {error}", pair) from error
        if last is None or (last.producer_id, last.epoch) < pair:  # pairs only rise, and the next one is in use now
            raise TransactionRolledBackError(f"the transaction was rolled back: its commit was never decided ({why})")
        if (last.producer_id, last.epoch) != pair:
            raise _unknown(f"{lost}; {name!r} is not remembered with it", pair)
        log.info("the answer to a commit of %r got lost; it was %s", name, "done" if last.committed else "not done")
        if not last.committed:
            raise TransactionRolledBackError(f"the transaction was rolled back ({last.how}): {why}")

    async def abort(self, session: TransactorSession, txn_id: bytes) -> None:
        """Roll a transaction back. After a lost answer the node rolls it back later, since no commit can follow."""
        try:
            await session.discharge(txn_id, fail=True)
        except TransactionRolledBackError:
            pass  # it was rolled back before
        except (Unanswered, HoldfastError):
            await self.drop()


def pair_of(txn_id: bytes) -> tuple[int, int] | None:
    """Return (producer id, epoch) of a transaction's id; None if the id is not in the form of Holdfast's nodes."""
    form = protocol.TRANSACTION_NAME
    if len(txn_id) != form.size or txn_id[0] != protocol.TRANSACTION_NAME_VERSION:
        return None
    _, producer_id, epoch, _ = form.unpack(txn_id)
    return producer_id, epoch


def _unknown(text: str, pair: tuple[int, int] | None, advice: str | None = None) -> TransactionOutcomeUnknownError:
    producer_id, epoch = (None, None) if pair is None else pair
    whose = "" if pair is None else f" (producer {producer_id}, epoch {epoch})"
    return TransactionOutcomeUnknownError(
        f"it is not known what became of the transaction{whose}: {text}",
        producer_id=producer_id, epoch=epoch, advice=advice,
    )  # fmt: skip


def _drawn() -> str:
    return secrets.token_hex(12)
