"""Client side of the link on which transactions are declared and discharged.

A commit whose answer never comes is neither a commit nor a rollback. So a call raises `NotSent` only if nothing was
sent to the node, and `Unanswered` if the node may have got it; otherwise it returns the node's outcome. After
`Unanswered` the caller finds the outcome out, or reports that it is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast import protocol
from holdfast.amqp.encoding.codec import uint
from holdfast.amqp.errors import (
    LINK_STOLEN,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN_ID,
    Error,
)
from holdfast.amqp.links.delivery_states import Accepted, Declared, DeliveryState, Rejected
from holdfast.amqp.transactions import encode_declare, encode_discharge
from holdfast.client.errors import (
    RETRIABLE_CONDITIONS,
    HoldfastError,
    LinkRefusedError,
    OwnershipLostError,
    ProducerFencedError,
    ProtocolError,
    TimeoutExpiredError,
    TransactionRolledBackError,
    UnsupportedError,
)
from holdfast.client.transport.cluster_identity import Identity
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.links import Sender
from holdfast.client.waits.suspend_aware_timeout import Patience

ROLLED_BACK = frozenset({TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT, TRANSACTION_UNKNOWN_ID})


class NotSent(Exception):
    """The request was not sent to the node; `args[0]` is the reason."""


class Unanswered(Exception):
    """The request was sent, and its answer will not come; `args[0]` is the reason."""


@dataclass(frozen=True)
class LastTransaction:
    """End of the last transaction of a transactional id, as the node reported it when this producer took the id.

    `how` names the cause of its end: its `client`, a `timeout`, `fenced` by the next holder, an `operator`, or its
    `node`, which was gone."""

    producer_id: int
    epoch: int
    committed: bool
    how: str


@dataclass(frozen=True)
class CoordinatorWish:
    """An attach for one producer's transactions. `holder`: a random name for this attach, the same in all its tries.
    `succeeds`: the name with which this producer held the id before, if it comes back."""

    transactional_id: str | None
    timeout_s: float
    holder: str = ""
    succeeds: str | None = None
    commit_answer: str = protocol.ANSWERED_WHEN_VISIBLE

    fenced: ClassVar[type[HoldfastError]] = ProducerFencedError
    """Error that is raised if another holder has the id now."""

    @property
    def what(self) -> str:
        return f"transactional id {self.transactional_id!r}" if self.transactional_id else "transactions"

    def properties(self) -> dict[str, Any]:
        said: dict[str, Any] = {protocol.TRANSACTION_TIMEOUT: uint(max(1, round(self.timeout_s * 1000)))}
        if self.commit_answer != protocol.ANSWERED_WHEN_VISIBLE:
            said[protocol.DISCHARGE_ANSWER] = self.commit_answer
        if self.transactional_id is not None:
            said[protocol.TRANSACTIONAL_ID] = self.transactional_id
            said[protocol.TRANSACTION_HOLDER] = self.holder
            if self.succeeds is not None:
                said[protocol.TRANSACTION_SUCCEEDS] = self.succeeds
        return said


class ControlLink:
    """A control link, on which one request after another is answered. Implements `SenderOwner`."""

    def __init__(self, connection: ClientConnection, wish: CoordinatorWish) -> None:
        self.connection = connection
        self.ended: HoldfastError | None = None  # why the link ended
        self.last: LastTransaction | None = None
        self.member: str | None = None  # of a transaction group
        self._what, self._fenced = wish.what, wish.fenced
        self._sender: Sender | None = None
        self._answers: dict[int, asyncio.Future[DeliveryState]] = {}
        self._credit = asyncio.Event()

    @classmethod
    async def attach(
        cls, connection: ClientConnection, wish: CoordinatorWish, bound_s: float, which: Identity
    ) -> ControlLink:
        """Attach a control link. `which`: identity of the cluster to which it must lead."""
        link = cls(connection, wish)
        try:
            link._sender = await connection.attach_coordinator(wish.properties(), link, bound_s=bound_s, which=which)
        except HoldfastError as error:
            raise link._typed(error) from error
        link._learn(link._sender.properties)
        return link

    def _learn(self, told: Mapping[str, Any]) -> None:
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
    def is_asked(self) -> bool:
        """True while a request is not answered."""
        return bool(self._answers)

    async def close(self) -> None:
        """Close the link; the node rolls back its open transaction."""
        self.ended = self.ended or LinkRefusedError(f"{self._what}: closed here")
        if self._sender is not None:
            await self._sender.close()

    # ---------------------------------------------------------------- asking

    async def declare(self, bound_s: float) -> bytes:
        """Begin a transaction and return its id. After a `retriable` error no transaction is left open."""
        try:
            outcome = await self._ask(encode_declare(), bound_s)
        except (NotSent, Unanswered) as lost:
            raise lost.args[0] from lost
        if isinstance(outcome, Declared):
            return outcome.txn_id
        raise self._refused(outcome, "no transaction was begun")

    async def discharge(self, txn_id: bytes, *, fail: bool, bound_s: float) -> None:
        """Commit a transaction, or roll it back (`fail`).

        Raises NotSent, Unanswered, or the node's refusal, after which it is rolled back."""
        outcome = await self._ask(encode_discharge(txn_id, fail), bound_s)
        if not isinstance(outcome, Accepted):
            raise self._refused(outcome, "the transaction was rolled back", rolled_back=True)

    async def _ask(self, payload: bytes, bound_s: float) -> DeliveryState:
        number: int | None = None
        try:
            async with Patience(bound_s):
                while self.ended is None and (self._sender is None or self._sender.credit < 1):
                    self._credit.clear()
                    await self._credit.wait()
                if self.ended is not None or self._sender is None:
                    raise NotSent(self.ended)
                (number,) = self._sender.send_many([payload])
                answer = self._answers[number] = asyncio.get_running_loop().create_future()
                return await answer
        except TimeoutError:
            late = TimeoutExpiredError(f"{self._what}: the node did not answer within {bound_s:g} s")
            raise (NotSent(late) if number is None else Unanswered(late)) from None
        except HoldfastError as error:
            raise Unanswered(error) from error
        finally:
            if number is not None:
                self._answers.pop(number, None)

    def _refused(self, outcome: DeliveryState, what: str, *, rolled_back: bool = False) -> HoldfastError:
        if not isinstance(outcome, Rejected):
            return ProtocolError(f"{self._what}: the node's answer is {type(outcome).__name__}")
        return self._refusal(outcome.error, f"{self._what}: {what}", rolled_back=rolled_back)

    def _refusal(self, error: Error | None, what: str, *, rolled_back: bool) -> HoldfastError:
        """Make the program's error for a refusal by the coordinator.

        `rolled_back`: there was a transaction, and it is rolled back, whatever the reason."""
        condition = "" if error is None else error.condition
        text = f"{what}: {(error.description if error is not None else '') or condition or 'no reason was given'}"
        if condition == LINK_STOLEN:
            return self._fenced(text)
        if rolled_back or condition in ROLLED_BACK:
            return TransactionRolledBackError(text, condition=condition)
        return LinkRefusedError(text, condition=condition, retriable=condition in RETRIABLE_CONDITIONS)

    def _typed(self, error: HoldfastError) -> HoldfastError:
        if isinstance(error, OwnershipLostError):  # amqp:link:stolen
            return self._fenced(str(error))
        if isinstance(error, LinkRefusedError) and error.condition == NOT_IMPLEMENTED:
            return UnsupportedError(str(error))
        return error

    # ---------------------------------------------------------------- from the link

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
