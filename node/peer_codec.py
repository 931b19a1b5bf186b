"""The node's words as they travel between nodes: `cluster.rpc.PartitionTypes`.

Partitions' words are those of `node.partition.api`. All questions to a leader but appends and reads, be it of a
partition or of a transaction coordinator, are one union here; the tag says which it is, and a replica refuses a
question that is not for it.
"""

from __future__ import annotations

import msgspec

from holdfast.records.record_batch import Attributes, Damaged, RecordBatch, read_batch
from node.partition import leader_queries as partition
from node.partition.api import (
    After,
    AfterTime,
    Appended,
    Earliest,
    Failed,
    Latest,
    PartitionDescription,
    ProducerInfo,
    ProducerOpened,
    ProducerRequest,
    ReaderClaim,
    ReadError,
)
from node.transaction_coordinator.coordinator_queries import AskLost, CoordinatorAnswer, CoordinatorQuestion, Lost

__all__ = [
    "After",
    "AfterTime",
    "Answer",
    "Appended",
    "Earliest",
    "Failed",
    "Latest",
    "PartitionDescription",
    "ProducerInfo",
    "ProducerOpened",
    "ProducerRequest",
    "Question",
    "ReadError",
    "ReaderClaim",
    "decode_answer",
    "decode_question",
    "encode_answer",
    "encode_question",
    "placed_batch",
    "record_batch",
]  # fmt: skip

Question = partition.Question | CoordinatorQuestion | AskLost
Answer = partition.Answer | CoordinatorAnswer | Lost

_ENCODER = msgspec.msgpack.Encoder()
_QUESTIONS = msgspec.msgpack.Decoder(Question)
_ANSWERS = msgspec.msgpack.Decoder(Answer)


def record_batch(data: bytes) -> RecordBatch:
    """A batch that another node passes on; the partition that stores it checks all of it. Raises ValueError."""
    batch, end = read_batch(data)
    if end != len(data):
        raise Damaged(f"{len(data) - end} bytes behind a record batch")
    return batch


def placed_batch(data: bytes) -> RecordBatch:
    """A batch that another node has sent to a reader here. Raises ValueError."""
    batch, end = read_batch(data)
    if end != len(data) or batch.head.base_offset < 0 or batch.head.attributes & Attributes.CONTROL:
        raise ValueError(f"{batch!r} at {batch.head.base_offset} in {len(data)} bytes is none for a reader")
    return batch


def encode_question(question: Question) -> bytes:
    return _ENCODER.encode(question)


def decode_question(data: bytes) -> Question:
    """Decode a question. Raises ValueError."""
    return _QUESTIONS.decode(data)


def encode_answer(answer: Answer) -> bytes:
    return _ENCODER.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """Decode an answer. Raises ValueError."""
    return _ANSWERS.decode(data)
