"""The load driver against a stock proton broker: every event is accounted for, whatever the broker says of it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest
from proton import Condition, Delivery, Described, Endpoint, Message, symbol, ulong

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.load import Load, LoadPlan
from benchmarks.driver.reconnecting import ReconnectingLoad
from benchmarks.driver.stamp import Template, read_stamp
from benchmarks.driver.wire import PeerError, Url
from benchmarks.peers.base import free_ports
from tests.unit.benchmarks.broker import EchoBroker, redirect_info


def url(broker: EchoBroker) -> Url:
    return Url("127.0.0.1", broker.port, "log")


def send(broker: EchoBroker, count: int, **options: Any) -> dict[str, Any]:
    report = Load(LoadPlan(senders=1, send_urls=(url(broker),), count=count, drain_s=5, **options)).run()
    found = report["send"]
    assert isinstance(found, dict)
    return found


def receive(broker: EchoBroker, count: int, **options: Any) -> dict[str, Any]:
    report = Load(LoadPlan(receivers=1, receive_urls=(url(broker),), count=count, drain_s=1, **options)).run()
    found = report["receive"]
    assert isinstance(found, dict)
    return found


def shelved(numbers: list[int], size: int = 100) -> list[bytes]:
    """Encoded events of one sender with these sequence numbers."""
    template = Template(size, sender_id=1)
    found = []
    for number in numbers:
        template.stamp(number, 0)
        found.append(bytes(template.buffer))
    return found


def test_every_accepted_event_is_counted_once() -> None:
    with EchoBroker() as broker:
        report = send(broker, 500, size=100, window=50)
        assert broker.received == 500
    assert (report["events"], report["sent"], report["unsettled"], report["outcomes"]) == (500, 500, 0, {})
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["max"]


def test_what_is_not_accepted_is_reported_with_the_reason_and_not_counted() -> None:
    outcomes = [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED]
    with EchoBroker() as broker:
        broker.outcome_of = lambda index: outcomes[index % 4]
        report = send(broker, 100, size=100, window=10)
    assert report["events"] == 25
    assert report["outcomes"] == {"rejected": 25, "released": 25, "modified": 25}
    assert report["reasons"] == {"rejected": "test:no: not this one"}


@pytest.mark.parametrize("durable", [False, True])
def test_events_say_that_they_are_durable_where_that_is_asked_for(durable: bool) -> None:
    with EchoBroker() as broker:
        report = send(broker, 1, size=100, send_options=LinkOptions(durable=durable))
        message = Message()
        message.decode(broker.last)
    assert report["events"] == 1
    assert (message.durable, len(message.body)) == (durable, 100)
    assert read_stamp(message.body, 100) is not None


def test_events_larger_than_a_frame_and_than_the_socket_pass() -> None:
    with EchoBroker() as broker:
        report = send(broker, 12, size=1 << 20, window=4)
    assert (report["events"], report["unsettled"]) == (12, 0)


def test_a_run_bounded_by_seconds_ends_and_leaves_nothing_unsettled() -> None:
    with EchoBroker() as broker:
        plan = LoadPlan(senders=2, send_urls=(url(broker),), size=100, window=10, seconds=0.3, warmup_s=0.1)
        report = Load(plan).run()["send"]
    assert isinstance(report, dict)
    assert report["events"] == report["sent"] == broker.received > 0
    assert report["measured_events"] <= report["events"]
    assert report["senders"] == 2


def test_who_wants_to_know_hears_when_all_links_are_up_and_nothing_was_sent() -> None:
    heard = []
    with EchoBroker() as broker:
        load = Load(LoadPlan(senders=2, send_urls=(url(broker),), size=100, count=10))
        load.run(lambda: heard.append((len(broker.links), broker.received)))
        assert broker.received == 20
    assert heard == [(2, 0)]


def test_a_redirect_is_followed_when_asked_for() -> None:
    with EchoBroker() as first, EchoBroker() as second:
        first.redirect_to = redirect_info("127.0.0.1", second.port, "log")
        report = send(first, 50, size=100, send_options=LinkOptions(follow_redirects=True))
        assert (first.received, second.received) == (0, 50)
        assert symbol("amqp:link:redirect") in list(first.desired[0])
    assert (report["events"], report["redirects"]) == (50, 1)


def test_a_redirect_is_an_error_when_not_asked_for() -> None:
    with EchoBroker() as broker:
        broker.redirect_to = redirect_info("127.0.0.1", 1, "log")
        with pytest.raises(PeerError, match="amqp:link:redirect"):
            send(broker, 1)
        assert not broker.desired[0]


def nobody() -> Url:
    return Url("127.0.0.1", free_ports(1)[0], "log")


class Leaving(EchoBroker):
    """Takes thirty events, and then ends the connection without a word for what else came, and refuses a new link."""

    def on_delivery(self, event: Any) -> None:
        if self.received < 30:
            super().on_delivery(event)
        elif event.connection.state & Endpoint.LOCAL_ACTIVE:
            self.refusal = Condition("test:gone", "somebody else took over")
            event.connection.close()


def test_a_sender_that_reconnects_sends_again_what_was_in_flight_and_waits_for_who_takes_over() -> None:
    with Leaving() as first, EchoBroker() as second:
        urls = (url(first), nobody(), url(second))
        plan = LoadPlan(senders=1, send_urls=urls, size=100, window=10, count=100, drain_s=5)
        report = ReconnectingLoad(plan).run()["send"]
        assert isinstance(report, dict)
        assert (first.received, second.received >= 70) == (30, True)
    assert (report["events"], report["unsettled"], report["lost_in_redirect"]) == (100, 0, 0)
    assert report["longest_gap_ms"] > 0


def test_a_sender_that_nobody_takes_back_gives_up() -> None:
    with Leaving() as broker:
        plan = LoadPlan(senders=1, send_urls=(url(broker),), size=100, window=10, count=100, drain_s=0.3)
        with pytest.raises(PeerError, match="no broker took the sender back"):
            ReconnectingLoad(plan).run()


def test_who_does_not_answer_at_first_is_an_error_and_only_one_sender_reconnects() -> None:
    with pytest.raises(OSError, match="refused"):
        ReconnectingLoad(LoadPlan(senders=1, send_urls=(nobody(),), count=1)).run()
    with pytest.raises(ValueError, match="one sender"):
        ReconnectingLoad(LoadPlan(senders=2, send_urls=(nobody(),), count=1))


def test_redirects_in_a_circle_end() -> None:
    with EchoBroker() as broker:
        broker.redirect_to = redirect_info("127.0.0.1", broker.port, "log")
        with pytest.raises(PeerError, match="redirected 6 times"):
            send(broker, 1, send_options=LinkOptions(follow_redirects=True))


def test_a_refused_link_says_why() -> None:
    with EchoBroker() as broker:
        broker.refusal = Condition("amqp:not-found", "no such log")
        with pytest.raises(PeerError, match="amqp:not-found: no such log"):
            send(broker, 1)


def test_a_missing_broker_is_an_error_not_a_hang() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        nobody = Url("127.0.0.1", taken.getsockname()[1], "log")
        with pytest.raises(OSError, match="refused"):
            Load(LoadPlan(senders=1, send_urls=(nobody,), count=1)).run()


@pytest.mark.parametrize("settled", [True, False])
def test_received_events_are_counted_and_their_order_checked(settled: bool) -> None:
    with EchoBroker() as broker:
        broker.shelf = shelved([0, 1, 2, 5, 6, 6, 7])
        report = receive(broker, 7, credit=4, receive_options=LinkOptions(settled=settled))
    assert (report["events"], report["gaps"], report["repeats"], report["foreign"]) == (7, 2, 1, 0)


def test_an_event_of_another_sender_is_told_apart() -> None:
    with EchoBroker() as broker:
        broker.shelf = [*shelved([0]), b"\x00\x53\x77\xa1\x05hello"]
        report = receive(broker, 2)
    assert (report["events"], report["foreign"]) == (2, 1)


def test_a_receiver_that_gets_too_little_gives_up_and_says_how_much_it_got() -> None:
    with EchoBroker() as broker:
        broker.shelf = shelved([0, 1])
        assert receive(broker, 3)["events"] == 2


def test_the_start_is_said_as_each_peer_wants_it() -> None:
    with EchoBroker() as broker:
        for kind, start in (("event-streams", "earliest"), ("event-streams", "00aa"), ("event-streams", "latest")):
            broker.shelf = shelved([0])
            receive(broker, 1, receive_options=LinkOptions(filter_kind=kind, start=start))  # type: ignore[arg-type]
        broker.shelf = shelved([0])
        receive(broker, 1, receive_options=LinkOptions(filter_kind="rabbitmq-stream", start="earliest"))
        filters = [link["filter"] for link in broker.links]

    def by_offset(value: str) -> dict[Any, Any]:
        return {symbol("start"): Described(ulong(0x200), {symbol("event-streams-offset"): symbol(value)})}

    assert filters[:2] == [by_offset("@earliest"), by_offset("00aa")]
    assert not filters[2]
    assert filters[3] == {symbol("rabbitmq:stream-offset-spec"): "first"}


def test_links_are_bound_to_a_partition_by_property() -> None:
    with EchoBroker() as broker:
        send(broker, 1, send_options=LinkOptions(properties={"event-streams-partition": "3"}))
        assert broker.links[0]["properties"] == {symbol("event-streams-partition"): symbol("3")}


def test_the_command_line_prints_one_json_object() -> None:
    with EchoBroker() as broker:
        command = [sys.executable, "-m", "benchmarks.driver", "send", "--count", "20", "--size", "100"]
        answer = subprocess.run(
            [*command, "--url", f"amqp://127.0.0.1:{broker.port}/log"], capture_output=True, text=True, check=True
        )
    assert json.loads(answer.stdout)["send"]["events"] == 20


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "http://127.0.0.1/x", "--count", "1"], "not a usable url"),
        (["--url", "amqp://127.0.0.1:1/x"], "needs a bound"),
        (["--url", "amqp://127.0.0.1:1/x", "--count", "1"], "refused"),
        (["--url", "amqp://127.0.0.1:1/x", "--count", "1", "--size", "3"], "at least 24 bytes"),
    ],
)
def test_the_command_line_refuses_what_cannot_work(arguments: list[str], complaint: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.driver", "send", *arguments], capture_output=True, text=True, check=False
    )
    assert answer.returncode != 0
    assert complaint in answer.stderr
    assert "Traceback" not in answer.stderr
