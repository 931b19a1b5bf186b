"""What one AMQP transfer costs in `holdfast.amqp`, in and out: `python -m benchmarks.subjects.engine [--json]`.

Two engines talk in memory; only the calls of the engine under measurement are on the clock, per transfer, on one
core. Rows: `in` = receive + events + settle + the disposition's bytes; `in settled` = the same for pre-settled
transfers; `out` = send_many + data_to_send; `out acked` adds receiving the outcomes; `append path` and `deliver
path` add what a node does to each message (ingest; splice of fresh delivery annotations). The best of several
rounds is shown: other load on the machine only ever adds to a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from typing import Any

from holdfast.amqp import (
    DeliveryPrefix,
    Engine,
    LinkRequested,
    Message,
    ReceiverLink,
    SenderLink,
    Settlements,
    Transfers,
    encode_message,
    ingest,
)

SIZES = (100, 1024, 16 * 1024)
BATCH = 500
"""Transfers in flight, as a producer with a window of 1000 keeps them."""
READ_BYTES = 256_000
"""Bytes per receive(): what one read of a socket gives under uvloop, if they are there."""
PRODUCER, CONSUMER = "producer", "consumer"


class Pair:
    """A client and a server engine with one open link between them."""

    def __init__(self, direction: str, settled: bool) -> None:
        self.server = Engine("server", container_id="node")
        self.client = Engine("client", container_id="bench")
        self.client.open()
        mode = 1 if settled else 0
        attach = self.client.open_sender if direction == PRODUCER else self.client.open_receiver
        near: Any = attach("log", snd_settle_mode=mode)
        self.exchange()
        far: Any = next(event.link for event in self.server.events() if isinstance(event, LinkRequested))
        far.accept()
        self.exchange()
        self.client.events()
        self.sender: SenderLink = near if direction == PRODUCER else far
        self.receiver: ReceiverLink = far if direction == PRODUCER else near
        self.source = self.client if direction == PRODUCER else self.server
        self.sink = self.server if direction == PRODUCER else self.client

    def exchange(self) -> None:
        while True:
            up, down = self.client.data_to_send(), self.server.data_to_send()
            self.server.receive(up)
            self.client.receive(down)
            if not up and not down:
                return


def _output(engine: Engine) -> list[bytes]:
    """Everything an engine has to say, cut into socket reads."""
    whole = b"".join(iter(engine.data_to_send, b""))
    return [whole[start : start + READ_BYTES] for start in range(0, len(whole), READ_BYTES)]


def _round(pair: Pair, payloads: list[bytes], settled: bool, seconds: dict[str, float], node: bool) -> None:
    clock = time.perf_counter
    prefix = DeliveryPrefix("0")
    sender, receiver, source, sink = pair.sender, pair.receiver, pair.source, pair.sink
    receiver.grant(len(payloads))
    pair.exchange()
    source.events()
    begin = clock()
    messages = (
        prefix.splice_batch(1_000_000, 1_700_000_000_000, payloads) if node and source is pair.server else payloads
    )
    sender.send_many(messages, settled)
    chunks = []
    while data := source.data_to_send():
        chunks.append(data)
    seconds["out"] += clock() - begin
    whole = b"".join(chunks)
    pieces = [whole[start : start + READ_BYTES] for start in range(0, len(whole), READ_BYTES)]
    begin = clock()
    answers = []
    received = 0
    for piece in pieces:
        sink.receive(piece)
        for event in sink.events():
            if isinstance(event, Transfers):
                received += len(event.payloads)
                if node and sink is pair.server:
                    stored = [ingest(payload)[0] for payload in event.payloads]
                    assert stored
                event.link.settle(event.deliveries)
        answers.append(sink.data_to_send())
    seconds["in"] += clock() - begin
    assert received == len(payloads)
    begin = clock()
    outcomes = 0
    for answer in answers:
        source.receive(answer)
        for event in source.events():
            if isinstance(event, Settlements):
                outcomes += len(event.outcomes)
    source.data_to_send()
    seconds["outcome"] += clock() - begin
    assert outcomes == (0 if settled else len(payloads))


def measure(direction: str, size: int, settled: bool, node: bool, rounds: int) -> dict[str, float]:
    """us per transfer, best round."""
    pair = Pair(direction, settled)
    body = bytes(size)
    payloads = [encode_message(Message(body))] * BATCH
    best: dict[str, float] = {}
    gc.collect()
    for _ in range(rounds):
        seconds = {"out": 0.0, "in": 0.0, "outcome": 0.0}
        _round(pair, payloads, settled, seconds, node)
        for key, value in seconds.items():
            micros = value / BATCH * 1e6
            best[key] = min(best.get(key, micros), micros)
    return best


def table(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for size in SIZES:
        for direction, settled, node, name in (
            (PRODUCER, False, False, "unsettled"),
            (PRODUCER, True, False, "settled"),
            (PRODUCER, False, True, "unsettled, in with a node's ingest"),
            (CONSUMER, False, True, "unsettled, out with a node's delivery annotations"),
            (CONSUMER, True, True, "settled, out with a node's delivery annotations"),
        ):
            best = measure(direction, size, settled, node, rounds)
            rows.append({"bytes": size, "case": name, **{key: round(value, 2) for key, value in best.items()}})
    return rows


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args(argv)
    rows = table(arguments.rounds)
    show: Callable[[str], None] = print
    if arguments.json:
        show(json.dumps(rows))
        return
    show(f"{'bytes':>6}  {'out':>6} {'in':>6} {'outcome':>8}   us per transfer, best of {arguments.rounds} rounds")
    for row in rows:
        show(f"{row['bytes']:>6}  {row['out']:>6} {row['in']:>6} {row['outcome']:>8}   {row['case']}")


if __name__ == "__main__":
    main()
