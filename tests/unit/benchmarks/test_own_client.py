"""The driver on our own client, against real nodes: every event is accounted for, in the report all drivers make."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest

from benchmarks.client.driver import ClientLoad
from benchmarks.client.sending import EventSender
from benchmarks.driver.bounded import LoadPlan, Reading
from benchmarks.driver.library import LinkEnd
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.measure import Outcomes, Tally
from benchmarks.driver.wire import PeerError, Url
from benchmarks.matrix.cell import MOST_READINGS, READING_S, measure
from benchmarks.matrix.contestants import Contestant
from benchmarks.matrix.rows import Row
from benchmarks.peers.base import running
from benchmarks.peers.holdfast import Holdfast
from holdfast.client import ProducerOptions
from holdfast.client.sync import RangeClient

OWN = Contestant("holdfast-replicated", "own-client", "Holdfast replicated, own client")
READINGS: tuple[Reading, ...] = ("columns", "arrays") if importlib.util.find_spec("numpy") else ("columns",)


def test_arrays_without_numpy_are_said_to_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    url = Url("127.0.0.1", 1, "nowhere")
    plan = LoadPlan(
        receivers=1, receive_urls=(url,), count=1, reading="arrays", receive_options=LinkOptions(start="earliest")
    )  # fmt: skip
    with pytest.raises(PeerError, match="there is no numpy here"):
        ClientLoad(plan).run()


def test_plans_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="a receiver reads one partition"):
        LoadPlan(senders=1, receivers=1, partitions=4)
    with pytest.raises(ValueError, match="chooses none"):
        _ = LoadPlan(senders=1, window=None).fixed_window


@pytest.mark.parametrize(("window", "aims_at_s"), [(50_000, None), (None, ProducerOptions().latency_target_s)])
async def test_no_more_than_its_window_bounds_a_sender_that_was_given_one(
    window: int | None, aims_at_s: float | None
) -> None:
    plan = LoadPlan(senders=1, send_urls=(Url("127.0.0.1", 1, "nowhere"),), window=window)
    end = LinkEnd(plan, plan.send_urls[0], plan.send_options, "a sender", 0, Tally(), Outcomes())
    options = EventSender(end, lambda: None)._producer.options
    assert options.latency_target_s == aims_at_s
    assert window is None or (options.window, options.max_buffered_events) == (window, window + 1)


@pytest.mark.cluster
@pytest.mark.slow
def test_every_event_is_counted_at_both_ends(tmp_path: Path) -> None:
    with running(Holdfast("replicated", tmp_path)) as peer:
        target = peer.create("own-client")
        plan = LoadPlan(
            senders=2, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,), count=1000,
            size=100, window=100, send_options=target.send_options, receive_options=target.tail_options,
        )  # fmt: skip
        report = ClientLoad(plan).run()
        sent, received = report["send"], report["receive"]
        assert (sent["events"], sent["sent"], sent["unsettled"], sent["outcomes"]) == (2000, 2000, 0, {})
        assert (received["events"], received["gaps"], received["repeats"], received["foreign"]) == (2000, 0, 0, 0)
        assert 0 < sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"]
        chunks = LoadPlan(
            senders=2, send_urls=(target.send_url,), count=1300, size=100, window=None, sending="chunks",
        )  # fmt: skip
        sent = ClientLoad(chunks).run()["send"]
        assert (sent["events"], sent["sent"], sent["unsettled"], sent["outcomes"]) == (2600, 2600, 0, {})
        divided = peer.create("own-client", 4)
        plan = LoadPlan(senders=1, send_urls=(divided.send_url,), count=2100, size=100, partitions=4)
        for each in (plan, dataclasses.replace(plan, sending="chunks")):
            assert ClientLoad(each).run()["send"]["events"] == 2100
        with RangeClient(peer.addresses) as client:
            held = [extent.end - extent.start for extent in client.extents(divided.name)]
        assert sum(held) == 2 * (2100 + 4)  # with greetings
        assert min(held) > 500
        row = Row("r", "a row", (OWN,), mode="backlog", size=100, count=2000)
        for reading in READINGS:
            read = measure(row, dataclasses.replace(OWN, reading=reading), {"holdfast-replicated": peer}, 1.0)
            received = read.driver["receive"]
            assert (read.problems, received["events"]) == ((), 2000 * received["readings"])
            assert 1 < received["readings"] <= MOST_READINGS, "what is read in no time is read again, not for ever"
            assert received["readings"] == MOST_READINGS or received["measured_s"] >= READING_S
            assert received["measured_s"] <= read.driver["elapsed_s"]
            assert read.events_per_s == pytest.approx(received["events"] / received["measured_s"], rel=1e-3)
        cell = measure(row, OWN, {"holdfast-replicated": peer}, 1.0)
        assert cell.problems == ()
        assert cell.driver["receive"]["events"] >= 2000
        nowhere = LoadPlan(senders=1, send_urls=(Url("127.0.0.1", target.send_url.port, "no-such-log"),), count=1)
        with pytest.raises(PeerError, match="no-such-log"):
            ClientLoad(nowhere).run()
