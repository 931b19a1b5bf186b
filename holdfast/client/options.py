"""Options of producers and consumers; every bound has a default that suits a program on one core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Literal, Protocol, TypeVar, get_args

from holdfast.client.errors import ConfigurationError, DamagedEventError
from holdfast.client.produce.event_batch import MAX_BATCH_BYTES
from holdfast.client.transport.network import NetworkOptions
from holdfast.records.record_batch import SEQUENCES


class Options(Protocol):
    def check(self) -> None: ...


Chosen = TypeVar("Chosen", bound=Options)

Isolation = Literal["committed", "uncommitted"]
"""Events that a consumer is given: with `committed`, none of a transaction that is open or was rolled back."""


CommitAnswer = Literal["visible", "decided"]
"""Moment at which `commit` returns: when committed readers see the transaction, or as soon as a majority's disks have
the decision; then readers see it a moment later."""

AfterFailure = Literal["raise", "continue"]
"""Behaviour of `send` once an event failed, and the program has not seen that: raise that failure until `flush` has,
or take more events, which are stored after the missing one; then only `flush` and `close` tell of it."""

Compression = Literal["none", "gzip", "zstd"]
"""Compression of events on their way. A log keeps them compressed as its own setting says."""


MAX_PREFETCH = (1 << 31) - 1
"""Limit of credit, which is a number of 32 bits on its way, and which proton counts with a sign."""


def check_count(name: str, value: object, most: int | None = None) -> None:
    """Check a number of events or bytes. Raises ConfigurationError, also for inf, which is no whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or (most is not None and value > most):
        limit = "" if most is None else f", and at most {most}"
        raise ConfigurationError(
            f"{name} must be a whole number more than 0{limit}, not {value!r}", advice="for no limit, give a large one"
        )


def check_log(log: object) -> None:
    """Check the name of a log. Raises ConfigurationError."""
    if not isinstance(log, str) or not log:
        raise ConfigurationError(f"a log is named by a string that is not empty, not {log!r}")


def check_time(name: str, value: object) -> None:
    """Check a time in seconds; inf is one. Raises ConfigurationError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ConfigurationError(f"{name} must be a time in seconds more than 0, not {value!r}")


def check_wait(name: str, value: object) -> None:
    """Check a time in seconds, also what is left of a time that is over; None: for ever. Raises ConfigurationError."""
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or isnan(value)):
        raise ConfigurationError(f"{name} must be a time in seconds, or None for ever, not {value!r}")


def options_of(kind: type[Chosen], given: object) -> Chosen:
    """Return the given options, or the default ones. Raises ConfigurationError."""
    if given is not None and not isinstance(given, kind):
        raise ConfigurationError(f"options are {kind.__name__}(...), not {given!r}")
    found = kind() if given is None else given
    found.check()
    return found


MAX_SEQUENCE = SEQUENCES - 1
MAX_GROUP_ID = (1 << 63) - 1
MAX_OWNER_LEVEL = (1 << 15) - 1


@dataclass(frozen=True)
class PartitionPublishingOptions:
    """Overrides of a partition's state when an idempotent producer opens it. None: as the partition says."""

    producer_group_id: int | None = None
    owner_level: int | None = None
    starting_sequence_number: int | None = None  # of the last event published: the next one is numbered after it

    def check(self, partition: str) -> None:
        for name, highest in (
            ("producer_group_id", MAX_GROUP_ID),
            ("owner_level", MAX_OWNER_LEVEL),
            ("starting_sequence_number", MAX_SEQUENCE),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
                raise ConfigurationError(f"partition {partition}: {name} is from 0 to {highest}, not {value!r}")


@dataclass(frozen=True)
class PartitionPublishingProperties:
    """The state of publishing to a partition, as it was when it was asked for. Save it to be able to go on after a
    crash: `to_options()` of it continues the numbers."""

    is_idempotent_publishing_enabled: bool
    producer_group_id: int | None = None
    owner_level: int | None = None
    last_published_sequence_number: int | None = None

    def to_options(self) -> PartitionPublishingOptions:
        return PartitionPublishingOptions(self.producer_group_id, self.owner_level, self.last_published_sequence_number)


@dataclass(frozen=True)
class ProducerOptions:
    """Options of a `ProducerClient`."""

    window: int = 16_384  # unconfirmed events per partition; the node's credit bounds them too
    max_buffered_events: int = 50_000
    max_buffered_bytes: int = 64 * 1024 * 1024
    # How soon what is sent should be confirmed: `send` waits when more is outstanding than is confirmed in that time at
    # the measured rate, and not only when the buffer is full. None or 0: only then. Kafka leaves the same to its users,
    # who size `buffer.memory` (librdkafka: `queue.buffering.max.messages`) for one rate.
    latency_target_s: float | None = 0.02
    max_batch_bytes: int = MAX_BATCH_BYTES  # of `create_batch`, unless it is told otherwise
    compression: Compression = "none"  # of events on their way to a node, those together that go out together
    delivery_timeout_s: float = 30.0  # without any confirmation for so long, events are given up
    after_failure: AfterFailure = "raise"  # what `send` does while the program has not seen a failure
    idempotent: bool = True  # events are numbered, so that none is stored twice
    # With any of them, the producer is one that the program names, by the rules of Event Hubs: each call names its
    # partition, an event is published once, and the producer never goes on as another one.
    partition_options: Mapping[str, PartitionPublishingOptions] = field(default_factory=dict)
    transactional_id: str | None = None  # of `transaction()`: the last producer to open it has it alone
    transaction_timeout_s: float = 60.0  # a transaction that is open for longer is rolled back by the nodes
    commit_answer: CommitAnswer = "visible"  # what `commit` of a transaction waits for
    network: NetworkOptions = field(default_factory=NetworkOptions)

    def check(self) -> None:
        for name in ("window", "max_buffered_events", "max_buffered_bytes", "max_batch_bytes"):
            check_count(name, getattr(self, name))
        for name in ("delivery_timeout_s", "transaction_timeout_s"):
            check_time(name, getattr(self, name))
        if self.compression not in get_args(Compression):
            names = ", ".join(get_args(Compression))
            raise ConfigurationError(f"compression is one of {names}, not {self.compression!r}")
        if self.after_failure not in get_args(AfterFailure):
            names = ", ".join(get_args(AfterFailure))
            raise ConfigurationError(f"after_failure is one of {names}, not {self.after_failure!r}")
        if self.latency_target_s:
            check_time("latency_target_s", self.latency_target_s)
        self._check_idempotence()
        self._check_transactions()

    def _check_transactions(self) -> None:
        name = self.transactional_id
        if name is not None and (not isinstance(name, str) or not 0 < len(name) <= 256 or name.startswith("$")):
            raise ConfigurationError(
                f"a transactional_id is a string of 1 to 256 characters without a dollar sign in front, not {name!r}"
            )
        if self.commit_answer not in get_args(CommitAnswer):
            names = ", ".join(get_args(CommitAnswer))
            raise ConfigurationError(f"commit_answer is one of {names}, not {self.commit_answer!r}")

    def _check_idempotence(self) -> None:
        if self.partition_options and not self.idempotent:
            raise ConfigurationError(
                "partition_options are those of an idempotent producer", advice="leave out idempotent=False"
            )
        for partition, options in self.partition_options.items():
            if not isinstance(partition, str):
                raise ConfigurationError(f"partitions are named by strings, not {partition!r}")
            if not isinstance(options, PartitionPublishingOptions):
                raise ConfigurationError(
                    f"partition {partition}: {options!r} is not a PartitionPublishingOptions",
                    advice="of saved properties, take to_options()",
                )
            options.check(partition)


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of a `ConsumerClient`."""

    prefetch: int = 8192  # events under way or buffered, per partition
    prefetch_bytes: int = 16 * 1024 * 1024  # the same in bytes, judged by the messages seen
    reconnect_timeout_s: float = 30.0  # a partition that cannot be reached for so long is an error
    until_end: bool = False  # stop at what was the end of the log when the consumer started
    # Called, if given, with each event that cannot be decoded, and that event is passed over. Without it events are
    # handed out as they are, and the parts of a damaged one raise DamagedEventError when they are asked for.
    on_damaged: Callable[[DamagedEventError], None] | None = None
    network: NetworkOptions = field(default_factory=NetworkOptions)

    def check(self) -> None:
        check_count("prefetch", self.prefetch, MAX_PREFETCH)
        check_count("prefetch_bytes", self.prefetch_bytes)
        check_time("reconnect_timeout_s", self.reconnect_timeout_s)
