"""Configurations as bytes: entries of a log, rows on disk, and parts of messages. One encoding for all three.

The rule: an entry says by itself what it is, by its first byte, and a replica that cannot read one stops: others act
on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from cluster.raft.interfaces import ENTRY_CONFIGURATION
from cluster.raft.membership.configuration import Configuration, Replica, Replicas, fault
from cluster.raft.proposal_outcomes import UnknownEntry
from cluster.raft.raft_pb2 import ConfigurationRecord, ReplicaRecord


def to_record(configuration: Configuration) -> ConfigurationRecord:
    return ConfigurationRecord(
        version=configuration.version,
        voters=_records(configuration.voters),
        outgoing=_records(configuration.outgoing),
        learners=_records(configuration.learners),
        demoted=_records(configuration.demoted),
        move=configuration.move,
        ended=configuration.ended,
    )


def from_record(record: ConfigurationRecord) -> Configuration:
    return Configuration(
        record.version,
        _replicas(record.voters),
        _replicas(record.outgoing),
        _replicas(record.learners),
        _replicas(record.demoted),
        record.move,
        record.ended,
    )


def encode_entry(configuration: Configuration) -> bytes:
    return ENTRY_CONFIGURATION + to_record(configuration).SerializeToString(deterministic=True)


def decode_entry(entry: bytes) -> Configuration:
    """Raises UnknownEntry if the entry holds more, or less, than this program knows."""
    try:
        configuration = from_record(ConfigurationRecord.FromString(entry[1:]))
    except DecodeError as error:
        raise UnknownEntry(f"a configuration in the log cannot be read: {error}") from error
    why = fault(configuration)
    if why is None and encode_entry(configuration) != entry:
        why = "it has parts that this program does not know; install the cluster's newest release on this node"
    if why is not None:
        raise UnknownEntry(f"a configuration in the log ({configuration}) cannot be: {why}")
    return configuration


def _records(replicas: Replicas) -> list[ReplicaRecord]:
    return [ReplicaRecord(node=replica.node, birth=replica.birth) for replica in sorted(replicas)]


def _replicas(records: Iterable[ReplicaRecord]) -> Replicas:
    return frozenset(Replica(record.node, record.birth) for record in records)
