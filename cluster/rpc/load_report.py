"""Report of a node on its disk and on the partitions that it leads, for the planner at the metadata leader.

The rule: who asks names nothing and is told of led groups only, so the answers of all nodes together are as long as the
list of partitions; groups that the asker does not know are dropped by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from google.protobuf.message import DecodeError

from cluster.rpc import rpc_pb2 as pb

MAX_REPORTED = 20_000
"""Groups in one report: as many as a cluster has."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    capacity_bytes: int = 0
    used_bytes: int = 0
    """Bytes of the file system that are not free for the node."""
    led: Mapping[int, int] = field(default_factory=dict)
    """Bytes of one replica of each group that the node leads."""
    garbage_bytes: int = 0
    """Bytes of those used that are dead, and are given back when space gets short."""


def report_to_pb(report: LoadReport) -> pb.ReportReply:
    led = dict(islice(report.led.items(), MAX_REPORTED))
    return pb.ReportReply(
        capacity_bytes=report.capacity_bytes,
        used_bytes=report.used_bytes,
        groups=led.keys(),
        sizes=led.values(),
        garbage_bytes=report.garbage_bytes,
    )


def report_from_pb(reply: pb.ReportReply) -> LoadReport:
    """Read a report. Raises DecodeError."""
    if len(reply.groups) != len(reply.sizes) or len(reply.groups) > MAX_REPORTED:
        raise DecodeError(
            f"a report with {len(reply.groups)} groups and {len(reply.sizes)} sizes, {MAX_REPORTED} at most"
        )
    led = dict(zip(reply.groups, reply.sizes, strict=True))
    return LoadReport(reply.capacity_bytes, reply.used_bytes, led, reply.garbage_bytes)
