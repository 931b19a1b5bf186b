"""A client that writes one transaction after the other under a transactional id, through nodes that come and go, and
says of each what it knows: committed, rolled back, or what it learnt when it came back.

The judge is what committed readers see: all events of a transaction, or none, in every partition.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any

from holdfast import protocol
from holdfast.amqp import (
    Accepted,
    ConnectionClosed,
    Coordinator,
    LinkDetached,
    SenderLink,
    Transactional,
)
from holdfast.client.consumer import ConsumerClient, ConsumerOptions
from holdfast.client.start_position import Start
from holdfast.client.transport.network import NetworkOptions
from tests.integration.clusters.cluster import Cluster
from tests.unit.listener.support.peer import Peer, message
from tests.unit.listener.support.transacting import Control

LISTENER = "never"  # through gateways
ATTEMPT_S = 60.0
_TXN_ID = struct.Struct(">BQHI")


class LostTransaction(Exception):
    """The connection, or a link, ended before the answer."""


@dataclass
class Attempted:
    """One transaction: its events are `name` in each partition."""

    name: str
    asked_to_commit: bool = False
    outcome: str = "open"  # committed, rolled back, or unknown
    pair: tuple[int, int] | None = None


@dataclass
class ScriptedTransactor:
    cluster: Cluster
    log: str
    partitions: int
    transactional_id: str
    timeout_ms: int = 20_000
    attempts: list[Attempted] = field(default_factory=list)

    async def one(self, node: int, *, commit: bool = True, hold: asyncio.Event | None = None) -> Attempted:
        """A transaction through a node; whatever becomes of it is noted. `hold`: its end is not asked for before."""
        attempt = Attempted(f"{self.transactional_id}-{len(self.attempts)}")
        self.attempts.append(attempt)
        try:
            async with asyncio.timeout(ATTEMPT_S):
                await self._through(node, attempt, commit=commit, hold=hold)
        except (LostTransaction, OSError, AssertionError, TimeoutError):
            attempt.outcome = "unknown" if attempt.asked_to_commit else "rolled back"
        return attempt

    def _port(self, node: int) -> int:
        return int(self.cluster.address(node, LISTENER).rpartition(":")[2])

    async def _through(self, node: int, attempt: Attempted, *, commit: bool, hold: asyncio.Event | None) -> None:
        async with Peer(self._port(node), container=self.transactional_id) as peer:
            control = await self._attach(peer)
            self._learn(control.link)
            senders = [await peer.sender(self.log, str(number)) for number in range(self.partitions)]
            txn = await control.declare()
            _, *attempt.pair, _ = _TXN_ID.unpack(txn)
            await self._send(peer, senders, txn, attempt)
            if hold is not None:
                await hold.wait()
                if _ended(peer) or not control.link.credit:
                    raise LostTransaction
            attempt.asked_to_commit = commit
            state = await control.discharge(txn, fail=not commit)
            if state is None:
                raise LostTransaction
            attempt.outcome = "committed" if commit and isinstance(state, Accepted) else "rolled back"

    async def _attach(self, peer: Peer) -> Control:
        terms = {protocol.TRANSACTIONAL_ID: self.transactional_id, protocol.TRANSACTION_TIMEOUT: self.timeout_ms}
        link = peer.engine.open_sender(Coordinator(), properties=terms)
        await peer._opened(link)
        await peer.until(lambda: link.credit > 0 or _ended(peer))
        return Control(peer, link)

    async def _send(self, peer: Peer, senders: list[SenderLink], txn: bytes, attempt: Attempted) -> None:
        for sender in senders:
            sender.send_many([message(attempt.name.encode())] * 2, txn_id=txn)
        await peer.flush()

        def told(sender: SenderLink) -> list[Any]:
            return peer.outcomes.get(sender, [])

        await peer.until(lambda: _ended(peer) or all(len(told(sender)) == 2 for sender in senders))
        states = [state for sender in senders for _, state in told(sender)]
        if len(states) < 2 * len(senders) or any(_refused(state) for state in states):
            raise LostTransaction

    def _learn(self, link: SenderLink) -> None:
        """What became of the last transaction, if nobody had told."""
        told = link.remote_properties.get(protocol.LAST_TRANSACTION)
        doubtful = [one for one in self.attempts if one.outcome == "unknown"]
        for one in doubtful:
            one.outcome = "rolled back"  # nothing of it was ever decided, or something later was
            if told is not None and (told["producer-id"], told["epoch"]) == tuple(one.pair or ()):
                one.outcome = "committed" if told["committed"] else "rolled back"

    # ------------------------------------------------------------ what there is

    async def read(self, node: int) -> list[list[str]]:
        """What a committed reader sees of each partition, up to the last stable offset that its leader told."""
        options = ConsumerOptions(until_end=True, network=NetworkOptions(follow_redirects=False))

        async def seen(partition: str) -> list[str]:
            reading = ConsumerClient(
                self.cluster.address(node, LISTENER),
                self.log,
                start=Start.earliest(),
                partitions=[partition],
                options=options,
            )
            async with reading as consumer:
                return [event.body.decode() async for event in consumer]

        return [await seen(str(number)) for number in range(self.partitions)]

    def judge(self, seen: list[list[str]]) -> None:
        """Raises AssertionError: a transaction is torn, lost, doubled or was brought back."""
        for one in self.attempts:
            counts = [partition.count(one.name) for partition in seen]
            assert len(set(counts)) == 1, f"{one} is torn: {counts}"
            expected = {"committed": [2], "rolled back": [0], "unknown": [0, 2]}[one.outcome]
            assert counts[0] in expected, f"{one}: {counts}"
        known = {one.name for one in self.attempts}
        strange = [name for partition in seen for name in partition if name not in known]
        assert not strange, f"nobody wrote {strange}"
        for partition in seen:
            order = [int(name.rpartition("-")[2]) for name in partition]
            assert order == sorted(order), f"out of order: {order}"


def _ended(peer: Peer) -> bool:
    return any(isinstance(event, LinkDetached | ConnectionClosed) for event in peer.history)


def _refused(state: Any) -> bool:
    return not (isinstance(state, Transactional) and isinstance(state.outcome, Accepted))
