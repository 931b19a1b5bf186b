"""The state machine of one partition: `apply(index, entry) -> effects`, the same on every replica.

The problem: replicas must agree on every offset, for ever, whatever was committed. The rules: no clock, no random
number, no disk, no configuration in here: state and the entry decide alone; time comes in the command. An entry that
makes no sense is a recorded rejection with its reason, which takes an index but no offset; nothing is raised out of
`apply`. Offsets count accepted events without gaps; timestamps never go back, though the clocks of leaders do.

Rejected: letting the leader assign offsets and write them into the batch (a deposed leader's batches would carry
offsets that another one gave away).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from node.partition.batch import Attributes, BatchHead, Damaged
from node.partition.commands import Command, Trim, UnknownCommand, decode

LAYOUT = 1

# ---------------------------------------------------------------- effects and results


@dataclass(frozen=True, slots=True)
class IndexBatch:
    """Remember where events begin: `count` of them from `base_offset` are in entry `index`."""

    base_offset: int
    index: int
    timestamp_ms: int
    count: int
    bytes_before: int  # of all batches ever accepted before this one


@dataclass(frozen=True, slots=True)
class ForgetBelow:
    """Events from `start_offset` up to `offset`, and entries up to `index`, are gone."""

    start_offset: int
    offset: int
    index: int


Effect = IndexBatch | ForgetBelow


@dataclass(frozen=True, slots=True)
class Accepted:
    base_offset: int
    timestamp_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    start_offset: int


@dataclass(frozen=True, slots=True)
class Rejected:
    code: str
    detail: str


Result = Accepted | Trimmed | Rejected
Applied = tuple[Result, tuple[Effect, ...]]

# ---------------------------------------------------------------- state


class LogState(msgspec.Struct, array_like=True):
    """Everything that a checkpoint holds. Fields are only ever added at the end; `layout` says how to read them."""

    layout: int = LAYOUT
    applied_index: int = 0
    start_offset: int = 0
    next_offset: int = 0
    last_timestamp_ms: int = 0
    total_bytes: int = 0  # of all batches ever accepted
    trimmed_bytes: int = 0
    trimmed_index: int = 0  # entries up to here are not needed
    last_batch_index: int = 0
    rejections: int = 0
    last_rejection_index: int = 0


class WrongCheckpoint(ValueError):
    """A checkpoint that this program cannot read; it verified, so another version wrote it."""


class PartitionMachine:
    def __init__(self) -> None:
        self.state = LogState()
        self._handlers: dict[type[Any], Callable[[int, Any], Applied]] = {
            BatchHead: self._append,
            Trim: self._trim,
        }

    # ------------------------------------------------------------ apply

    def apply(self, index: int, entry: bytes) -> Applied:
        state = self.state
        assert index > state.applied_index, f"entry {index} came after entry {state.applied_index}"
        state.applied_index = index
        try:
            command: Command = decode(entry)
        except UnknownCommand as error:
            return self._reject(index, "unknown-command", str(error))
        except Damaged as error:
            return self._reject(index, "damaged", str(error))
        return self._handlers[type(command)](index, command)

    def _append(self, index: int, head: BatchHead) -> Applied:
        if head.attributes & Attributes.CONTROL:
            return self._reject(index, "invalid-record", "a control batch, which no client may append")
        state = self.state
        base, bytes_before = state.next_offset, state.total_bytes
        timestamp_ms = max(state.last_timestamp_ms, head.max_timestamp_ms)
        state.next_offset = base + head.count
        state.total_bytes = bytes_before + head.size
        state.last_timestamp_ms = timestamp_ms
        state.last_batch_index = index
        effect = IndexBatch(base, index, timestamp_ms, head.count, bytes_before)
        return Accepted(base, timestamp_ms, head.count), (effect,)

    def _trim(self, index: int, command: Trim) -> Applied:
        state = self.state
        if command.offset <= state.start_offset:
            return self._reject(index, "already-trimmed", f"events begin at {state.start_offset}")
        if not (
            command.offset <= state.next_offset
            and state.trimmed_index < command.index < index
            and state.trimmed_bytes <= command.bytes_before <= state.total_bytes
        ):
            return self._reject(index, "invalid-trim", f"{command} does not fit {state}")
        effect = ForgetBelow(state.start_offset, command.offset, command.index)
        state.start_offset = command.offset
        state.trimmed_index = command.index
        state.trimmed_bytes = command.bytes_before
        return Trimmed(command.offset), (effect,)

    def _reject(self, index: int, code: str, detail: str) -> Applied:
        self.state.rejections += 1
        self.state.last_rejection_index = index
        return Rejected(code, f"entry {index}: {detail}"), ()

    # ------------------------------------------------------------ checkpoint

    def checkpoint(self) -> bytes:
        """Equal bytes mean equal replicas."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, data: bytes | None) -> None:
        if data is None:
            self.state = LogState()
            return
        try:
            state = msgspec.msgpack.decode(data, type=LogState)
        except msgspec.DecodeError as error:
            raise WrongCheckpoint(f"the checkpoint of a partition cannot be read: {error}") from error
        if state.layout != LAYOUT:
            raise WrongCheckpoint(f"checkpoint layout {state.layout}; this program reads layout {LAYOUT}")
        self.state = state
