"""Begin and end of the transactions of one producer, with their connection and their transactional id.

A transaction belongs to one connection. Connections break, and the node that gets the commit may die before it answers.

Rules:
 - the client never repeats a program's work: events are lost with their connection, and the program gets an error;
 - a commit whose answer never comes is neither a commit nor a rollback. At the next attach the cluster tells how the
   last transaction of the id ended. By its producer id and epoch it is that very one; else the outcome is unknown;
 - a fenced producer stays fenced: from its second attach on, it names the holder that it was, and the node refuses it
   if another one has taken the id since. Else a zombie whose connection broke would take the id back;
 - an attach has one holder name in all its tries. So a try whose answer got lost counts as this producer.

The connection announces no redirects: its node serves all partitions, as a gateway if it does not lead them. So a
producer whose transactions write to one partition moves to its leader between two of them (`leader_affinity`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from holdfast import protocol
from holdfast.amqp.encoding.codec import uint
from holdfast.amqp.errors import (
    LINK_STOLEN,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN_ID,
)
from holdfast.amqp.links.delivery_states import Accepted, Declared, DeliveryState, Rejected
from holdfast.amqp.transactions import encode_declare, encode_discharge
from holdfast.client.errors import (
    RETRIABLE_CONDITIONS,
    ClosedError,
    ConnectionLostError,
    HoldfastError,
    InvalidOperationError,
    LinkRefusedError,
    OwnershipLostError,
    ProducerFencedError,
    ProtocolError,
    TimeoutExpiredError,
    TransactionOutcomeUnknownError,
    TransactionRolledBackError,
    UnsupportedError,
)
from holdfast.client.options import ProducerOptions
from holdfast.client.transact.leader_affinity import Home
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.links import Sender, SenderOwner
from holdfast.client.transport.network import Backoff, Network
from holdfast.client.waits.close_once import CloseOnce
from holdfast.client.waits.suspend_aware_timeout import Patience

log = logging.getLogger("holdfast.client")

COORDINATOR = "the transaction coordinator"
HOLDER_BYTES = 12  # of randomness in the name of a holder
ROLLED_BACK = frozenset({TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT, TRANSACTION_UNKNOWN_ID})


@dataclass(frozen=True)
class LastTransaction:
    """End of the last transaction of a transactional id, as the node reported it when this producer took the id.

    `how` names the cause of its end: its `client`, a `timeout`, `fenced` by the next holder, an `operator`, or its
    `node`, which was gone."""

    producer_id: int
    epoch: int
    committed: bool
    how: str


class Transactor:
    """One connection after another, each with a control link, on which one request after another is answered, and a
    link to each partition. Implements `SenderOwner`, of the control link."""

    fenced_as: ClassVar[type[ProducerFencedError]] = ProducerFencedError
    """Error that is raised if another holder has the id now."""

    def __init__(self, servers: str | Sequence[str], log_name: str, options: ProducerOptions, plain: Network) -> None:
        """`plain`: the network of the producer, whose links nodes redirect."""
        self.options = options
        self.ended: HoldfastError | None = ClosedError("it was not opened")  # why there is no connection
        self.last: LastTransaction | None = None
        self.in_use = False  # by a transaction
        self.ending: asyncio.Future[None] | None = None  # of that one; it goes on even if its caller is cancelled
        self._log = log_name
        self._network = Network(servers, replace(options.network, follow_redirects=False))
        self._home = Home(plain, log_name)
        self._open: tuple[ClientConnection, Sender] | None = None  # with the control link
        self._links: dict[str, Sender] = {}
        self._answer: asyncio.Future[DeliveryState] | None = None  # to the request that was made
        self._credit = asyncio.Event()
        self._holder: str | None = None  # name with which this producer held the id last
        self._next_holder = secrets.token_hex(HOLDER_BYTES)
        self._connecting = asyncio.Lock()
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

    # ---------------------------------------------------------------- the connection

    async def connect(self, timeout_s: float | None = None) -> None:
        """Attach a control link, unless there is one, by the delivery timeout. The node fences the last holder of the
        transactional id, and rolls back its open transaction. Raises ProducerFencedError for good once fenced."""
        async with self._connecting:
            if self.ended is None:
                return
            await self.drop()
            self.check_not_fenced()
            properties = self.properties()

            async def attach(connection: ClientConnection, bound_s: float) -> None:
                self.ended = opening = ConnectionLostError(f"{self.what}: it is being opened")
                try:
                    control = await connection.attach_coordinator(
                        properties, self, bound_s=bound_s, which=self._network.cluster
                    )
                except HoldfastError as error:
                    raise self._typed(error) from error
                self.last = self._last_in(control.properties)
                self._open = connection, control
                if self.ended is opening:  # else the link ended right after its attach
                    self.ended = None

            bound_s = self.options.delivery_timeout_s if timeout_s is None else timeout_s
            try:
                await self._network.ask(attach, COORDINATOR, timeout_s=bound_s)
            except ProducerFencedError as error:
                self.ended = error
                raise
            self._holder, self._next_holder = self._next_holder, secrets.token_hex(HOLDER_BYTES)

    def _last_in(self, told: Mapping[str, Any]) -> LastTransaction | None:
        last = told.get(protocol.LAST_TRANSACTION)
        try:
            return None if last is None else LastTransaction(
                int(last["producer-id"]), int(last["epoch"]), bool(last["committed"]), str(last.get("how", ""))
            )  # fmt: skip
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"{self.what}: the node's word on the last one cannot be read: {last}") from error

    async def drop(self) -> None:
        """Close the connection, without waiting for answers; the node rolls back its open transaction."""
        self.ended = self.ended or LinkRefusedError(f"{self.what}: closed here")
        opened, self._open, self._links = self._open, None, {}
        if opened is None:
            return
        connection, control = opened
        try:
            await control.close()
        finally:  # even if the caller is cancelled again
            await connection.close()

    async def close(self) -> None:
        """Close the transactor. Idempotent; it goes on even if the caller is cancelled."""
        await self._release.done()

    async def _let_go(self) -> None:
        await self._home.close()
        await self.drop()
        await self._network.close()

    # ---------------------------------------------------------------- for a transaction

    def check_not_fenced(self) -> None:
        """Raise ProducerFencedError if another holder has the id."""
        if isinstance(self.ended, ProducerFencedError):
            raise self.ended.with_traceback(None)

    @property
    def connection(self) -> ClientConnection:
        """The connection that is open. Raises why there is none."""
        return self._opened()[0]

    def _opened(self) -> tuple[ClientConnection, Sender]:
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        assert self._open is not None, "it has not ended"
        return self._open

    def link(self, partition: str) -> Sender | None:
        """Return the open link to a partition, if there is one."""
        link = self._links.get(partition) if self.ended is None else None
        return link if link is not None and link.link.is_open else None

    async def attach(self, partition: str, owner: SenderOwner, bound_s: float) -> Sender:
        """Open a link to a partition. Raises the errors of the attach."""
        links = self._links  # of this connection
        links[partition] = link = await self.connection.attach_sender(
            self._log, partition, owner, bound_s=bound_s, which=self._network.log(self._log)
        )
        return link

    # ---------------------------------------------------------------- begin and end

    async def take(self) -> None:
        """Be used by one transaction from now on. Raises InvalidOperationError while another one is open."""
        if self.in_use and self.ending is not None:
            # Who asked for its end may have been cancelled, and cannot wait for it.
            await asyncio.wait({self.ending}, timeout=self.options.delivery_timeout_s)
        if self.in_use:
            raise InvalidOperationError(
                "another transaction of this producer is open", advice="end it first, or open another producer"
            )
        self.in_use, self.ending = True, None

    async def declare(self) -> bytes:
        """Begin a transaction and return its id; retry until the deadline while no node can begin one. Raises final
        errors at once."""
        home, self._home.found = self._home.found, None
        if home is not None and self.ended is None:
            log.debug("transactions are begun at %s from now on: it leads the partition that they write to", home)
            self._network.prefer(COORDINATOR, home)
            await self.drop()
        loop, backoff = asyncio.get_running_loop(), Backoff()
        deadline_s = loop.time() + self.options.delivery_timeout_s
        while True:
            await self.connect(deadline_s - loop.time())
            try:
                outcome = await self._ask(encode_declare(), max(0.1, deadline_s - loop.time()))
                if isinstance(outcome, Declared):
                    return outcome.txn_id
                raise self._refusal(outcome, "no transaction was begun")
            except BaseException as error:
                await self.drop()  # a transaction may be open there whose id we do not know; another would be refused
                if not isinstance(error, HoldfastError) or not error.retriable or loop.time() >= deadline_s:
                    raise
            await backoff.wait(max(0.0, deadline_s - loop.time()))

    async def commit(self, txn_id: bytes, partitions: Collection[str], *, empty: bool) -> None:
        """Commit a transaction with events in these partitions. `empty`: nothing at all was sent under it, so nothing
        can be lost.

        Raises TransactionRolledBackError, ProducerFencedError (rolled back, too), or TransactionOutcomeUnknownError."""
        try:
            outcome = await self._ask(encode_discharge(txn_id, fail=False), self.options.delivery_timeout_s)
        except HoldfastError as why:
            await self.drop()
            await self._unanswered(txn_id, why, empty=empty)
        else:
            self._check_ended(outcome)
        if self._open is not None:
            self._home.wrote(partitions, self._open[0].address)

    async def _unanswered(self, txn_id: bytes, why: HoldfastError, *, empty: bool) -> None:
        """Find out the outcome of a commit without an answer (`why`); return if it was committed, else raise."""
        if empty:
            return
        if self._answer is None:
            if isinstance(why, ProducerFencedError):
                raise why
            text = f"the transaction was rolled back before its commit was asked for: {why}"
            raise TransactionRolledBackError(text) from why
        name, (producer_id, epoch) = self.options.transactional_id, pair_of(txn_id)
        lost = f"the answer to the commit got lost ({why})"
        if name is None or producer_id is None or epoch is None:
            advice = None if name is None else "find out by what was to be written before you do the work again"
            raise _unknown(lost, txn_id, advice) from why
        try:
            await self.connect()
        except HoldfastError as error:
            raise _unknown(f"{lost}, and nobody could be asked: {error}", txn_id) from error
        last, pair = self.last, (producer_id, epoch)
        if last is None or (last.producer_id, last.epoch) < pair:  # pairs only rise, and the next one is in use now
            raise TransactionRolledBackError(f"the transaction was rolled back: its commit was never decided ({why})")
        if (last.producer_id, last.epoch) != pair:
            raise _unknown(f"{lost}; {name!r} is not remembered with it", txn_id)
        log.info("the answer to a commit of %r got lost; it was %s", name, "done" if last.committed else "not done")
        if not last.committed:
            raise TransactionRolledBackError(f"the transaction was rolled back ({last.how}): {why}")

    async def abort(self, txn_id: bytes) -> None:
        """Roll a transaction back. After a lost answer the node rolls it back later, since no commit can follow."""
        try:
            self._check_ended(await self._ask(encode_discharge(txn_id, fail=True), self.options.delivery_timeout_s))
        except TransactionRolledBackError:
            pass  # it was rolled back before
        except HoldfastError:
            await self.drop()

    # ---------------------------------------------------------------- asking

    async def _ask(self, payload: bytes, bound_s: float) -> DeliveryState:
        """Make a request and return its outcome. Raises why there is none; `_answer` is None if it did not go out."""
        self._answer = None
        try:
            async with Patience(bound_s):
                while not (control := self._opened()[1]).credit:
                    self._credit.clear()
                    await self._credit.wait()
                control.send_many([payload])
                self._answer = asyncio.get_running_loop().create_future()
                return await self._answer
        except TimeoutError:
            raise TimeoutExpiredError(f"{self.what}: the node did not answer within {bound_s:g} s") from None

    def _check_ended(self, outcome: DeliveryState) -> None:
        """Raise the node's refusal to end a transaction, which is rolled back then, whatever the reason."""
        if not isinstance(outcome, Accepted):
            raise self._refusal(outcome, "the transaction was rolled back", rolled_back=True)

    def _refusal(self, outcome: DeliveryState, what: str, *, rolled_back: bool = False) -> HoldfastError:
        """Make the program's error for an answer that accepts nothing. `rolled_back`: that is sure."""
        if not isinstance(outcome, Rejected):
            return ProtocolError(f"{self.what}: the node's answer is {type(outcome).__name__}")
        error = outcome.error
        condition, description = ("", "") if error is None else (error.condition, error.description)
        text = f"{self.what}: {what}: {description or condition or 'no reason was given'}"
        if condition == LINK_STOLEN:
            self.ended = fenced = self.fenced_as(text)
            return fenced
        if rolled_back or condition in ROLLED_BACK:
            return TransactionRolledBackError(text, condition=condition)
        return LinkRefusedError(text, condition=condition, retriable=condition in RETRIABLE_CONDITIONS)

    def _typed(self, error: HoldfastError) -> HoldfastError:
        if isinstance(error, OwnershipLostError):  # amqp:link:stolen
            return self.fenced_as(str(error))
        if isinstance(error, LinkRefusedError) and error.condition == NOT_IMPLEMENTED:
            return UnsupportedError(str(error))
        return error

    # ---------------------------------------------------------------- from the control link

    def on_credit(self) -> None:
        self._credit.set()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for _, state in outcomes:  # one, since the next request is made when this one is answered
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(state)

    def on_closed(self, error: HoldfastError) -> None:
        ended = self.ended if isinstance(self.ended, ProducerFencedError) else self._typed(error)
        self.ended = ended
        self._credit.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ended)


def pair_of(txn_id: bytes) -> tuple[int | None, int | None]:
    """Return producer id and epoch of a transaction's id; (None, None) if no node of Holdfast has made the id."""
    form = protocol.TRANSACTION_NAME
    if len(txn_id) != form.size or txn_id[0] != protocol.TRANSACTION_NAME_VERSION:
        return None, None
    _, producer_id, epoch, _ = form.unpack(txn_id)
    return producer_id, epoch


def _unknown(text: str, txn_id: bytes, advice: str | None = None) -> TransactionOutcomeUnknownError:
    producer_id, epoch = pair_of(txn_id)
    whose = "" if producer_id is None else f" (producer {producer_id}, epoch {epoch})"
    return TransactionOutcomeUnknownError(
        f"it is not known what became of the transaction{whose}: {text}",
        producer_id=producer_id, epoch=epoch, advice=advice,
    )  # fmt: skip
