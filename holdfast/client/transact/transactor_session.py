"""One connection of a producer's transactions: the link on which they are declared and discharged, and their senders.

A commit whose answer never comes is neither a commit nor a rollback. So a call that returns no outcome of the node
raises `Unanswered`, which tells whether the node may have got it. Then the caller finds the outcome out, or reports
that it is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import protocol
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
    HoldfastError,
    LinkRefusedError,
    OwnershipLostError,
    ProtocolError,
    TimeoutExpiredError,
    TransactionRolledBackError,
    UnsupportedError,
)
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.batch_queue import NO_LIMIT
from holdfast.client.transact.transactional_sender import Book, TransactionalSender
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.links import Sender
from holdfast.client.transport.network import Network
from holdfast.client.waits.suspend_aware_timeout import Patience
from holdfast.records.codec import Codec

ROLLED_BACK = frozenset({TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT, TRANSACTION_UNKNOWN_ID})


class Unanswered(Exception):
    """The answer to a request will not come. `sent`: the node may have got it."""

    def __init__(self, why: HoldfastError, *, sent: bool) -> None:
        super().__init__(why)
        self.why, self.sent = why, sent


@dataclass(frozen=True)
class LastTransaction:
    """End of the last transaction of a transactional id, as the node reported it when this producer took the id.

    `how` names the cause of its end: its `client`, a `timeout`, `fenced` by the next holder, an `operator`, or its
    `node`, which was gone."""

    producer_id: int
    epoch: int
    committed: bool
    how: str


class TransactorSession:
    """A control link, on which one request after another is answered, and a sender for each partition. Implements
    `SenderOwner`, of the control link."""

    def __init__(
        self,
        connection: ClientConnection,
        network: Network,
        log_name: str,
        options: ProducerOptions,
        *,
        what: str,
        fenced: type[HoldfastError],
    ) -> None:
        """`what`: name of the transactions in errors. `fenced`: error if another holder has the id now."""
        self.connection = connection
        self.ended: HoldfastError | None = None  # why no transaction can go on here
        self.last: LastTransaction | None = None
        self.member: str | None = None  # of a transaction group
        self._network, self._log, self._options = network, log_name, options
        self._what, self._fenced = what, fenced
        self._control: Sender | None = None
        self._answers: dict[int, asyncio.Future[DeliveryState]] = {}
        self._credit = asyncio.Event()
        self._senders: dict[str, TransactionalSender] = {}
        self._attaching = asyncio.Lock()

    async def open(self, properties: Mapping[str, Any], bound_s: float) -> None:
        """Attach the control link."""
        try:
            self._control = await self.connection.attach_coordinator(
                properties, self, bound_s=bound_s, which=self._network.cluster
            )
        except HoldfastError as error:
            raise self._typed(error) from error
        told = self._control.properties
        last, member = told.get(protocol.LAST_TRANSACTION), told.get(protocol.GROUP_MEMBER)
        self.member = None if member is None else str(member)
        if isinstance(last, dict):
            said = {str(name): value for name, value in last.items()}
            try:
                self.last = LastTransaction(
                    int(said["producer-id"]), int(said["epoch"]), bool(said["committed"]), str(said.get("how", ""))
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ProtocolError(f"{self._what}: the node's word on the last one cannot be read: {last}") from error

    @property
    def is_busy(self) -> bool:
        """True while something that was asked is not answered."""
        waiting = any(sender.is_waiting for sender in self._senders.values())
        return self._attaching.locked() or bool(self._answers) or waiting

    async def close(self) -> None:
        """Close the connection; the node rolls back the open transaction."""
        self.ended = self.ended or LinkRefusedError(f"{self._what}: closed here")
        try:
            if self._control is not None:
                await self._control.close()
        finally:  # even if the caller is cancelled again
            await self.connection.close()

    # ---------------------------------------------------------------- senders

    def sender(self, partition: str) -> TransactionalSender | None:
        """Return the open sender of a partition, if there is one."""
        found = self._senders.get(partition)
        return found if found is not None and found.ended is None else None

    async def attach(self, partition: str, bound_s: float) -> None:
        """Open the sender of a partition, if it is not. Raises the errors of the attach."""
        async with self._attaching:
            if self.sender(partition) is None:
                codec = Codec.named(self._options.compression)
                found = TransactionalSender(partition, self._options.window, codec)
                found.link = await self.connection.attach_sender(
                    self._log, partition, found, bound_s=bound_s, which=self._network.log(self._log)
                )
                found.queue.largest = found.link.max_event_bytes or NO_LIMIT
                if found.ended is not None:  # the link ended right after its attach
                    raise found.ended
                self._senders[partition] = found

    def give_up(self, book: Book, why: HoldfastError) -> None:
        """Wait for nothing of this transaction any more."""
        for sender in self._senders.values():
            sender.give_up(book, why)

    # ---------------------------------------------------------------- asking

    async def declare(self, bound_s: float) -> bytes:
        """Begin a transaction and return its id. After a `retriable` error no transaction is left open."""
        try:
            outcome = await self._ask(encode_declare(), bound_s)
        except Unanswered as lost:
            raise lost.why from lost
        if isinstance(outcome, Declared):
            return outcome.txn_id
        raise self._refusal(outcome, "no transaction was begun")

    async def discharge(self, txn_id: bytes, *, fail: bool) -> None:
        """Commit a transaction, or roll it back (`fail`).

        Raises Unanswered, or the node's refusal, after which it is rolled back."""
        outcome = await self._ask(encode_discharge(txn_id, fail), self._options.delivery_timeout_s)
        if not isinstance(outcome, Accepted):
            raise self._refusal(outcome, "the transaction was rolled back", rolled_back=True)

    async def _ask(self, payload: bytes, bound_s: float) -> DeliveryState:
        number: int | None = None
        try:
            async with Patience(bound_s):
                while self.ended is None and (self._control is None or self._control.credit < 1):
                    self._credit.clear()
                    await self._credit.wait()
                if self.ended is not None:
                    raise self.ended.with_traceback(None)
                assert self._control is not None, "it has credit"
                (number,) = self._control.send_many([payload])
                answer = self._answers[number] = asyncio.get_running_loop().create_future()
                return await answer
        except TimeoutError:
            late = TimeoutExpiredError(f"{self._what}: the node did not answer within {bound_s:g} s")
            raise Unanswered(late, sent=number is not None) from None
        except HoldfastError as error:
            raise Unanswered(error, sent=number is not None) from error
        finally:
            if number is not None:
                self._answers.pop(number, None)

    def _refusal(self, outcome: DeliveryState, what: str, *, rolled_back: bool = False) -> HoldfastError:
        """Make the program's error for an answer that accepts nothing.

        `rolled_back`: there was a transaction, and it is rolled back, whatever the reason."""
        if not isinstance(outcome, Rejected):
            return ProtocolError(f"{self._what}: the node's answer is {type(outcome).__name__}")
        error = outcome.error
        condition, description = ("", "") if error is None else (error.condition, error.description)
        text = f"{self._what}: {what}: {description or condition or 'no reason was given'}"
        if condition == LINK_STOLEN:
            self.ended = fenced = self._fenced(text)  # for good, whatever else ends it
            return fenced
        if rolled_back or condition in ROLLED_BACK:
            return TransactionRolledBackError(text, condition=condition)
        return LinkRefusedError(text, condition=condition, retriable=condition in RETRIABLE_CONDITIONS)

    def _typed(self, error: HoldfastError) -> HoldfastError:
        if isinstance(error, OwnershipLostError):  # amqp:link:stolen
            return self._fenced(str(error))
        if isinstance(error, LinkRefusedError) and error.condition == NOT_IMPLEMENTED:
            return UnsupportedError(str(error))
        return error

    # ---------------------------------------------------------------- from the control link

    def on_credit(self) -> None:
        self._credit.set()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for number, state in outcomes:
            answer = self._answers.get(number)
            if answer is not None and not answer.done():
                answer.set_result(state)

    def on_closed(self, error: HoldfastError) -> None:
        self.ended = self.ended or self._typed(error)
        self._credit.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self.ended)
