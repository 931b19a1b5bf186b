"""Reports between nodes: as they were told, and nothing that cannot be."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from cluster.rpc import LoadReport, Unavailable
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.load_report import MAX_REPORTED, report_from_pb, report_to_pb
from tests.unit.rpc.support import cluster_of


async def test_a_report_crosses_the_wire() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[2].load = LoadReport(100, 50, {7: 1 << 40, 8: 0}, 20)
        assert await nodes[1].network.client(2).report() == nodes[2].load


async def test_a_report_that_cannot_be_is_no_answer() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[2].load = LoadReport(1 << 63, 0)
        with pytest.raises(Unavailable, match="cannot be read"):
            await nodes[1].network.client(2).report()


def test_a_report_is_no_longer_than_the_list_of_partitions() -> None:
    many = LoadReport(0, 0, dict.fromkeys(range(1, MAX_REPORTED + 2), 1))
    assert len(report_from_pb(report_to_pb(many)).led) == MAX_REPORTED


@pytest.mark.parametrize(("groups", "sizes"), [(2, 1), (MAX_REPORTED + 1, MAX_REPORTED + 1)])
def test_columns_that_differ_or_are_too_long_are_no_report(groups: int, sizes: int) -> None:
    with pytest.raises(DecodeError, match=f"a report with {groups} groups and {sizes} sizes"):
        report_from_pb(pb.ReportReply(groups=range(groups), sizes=range(sizes)))
