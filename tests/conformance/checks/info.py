"""`<log>/$info`."""

from __future__ import annotations

from proton import Timeout, symbol

from tests.conformance.broker import BrokerUnderTest, marks
from tests.conformance.suite import NotApplicable, rule

KEYS = {"partition", "earliest-offset", "latest-offset"}


@rule("ES-54")
def every_log_has_its_info(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        receiver = connection.create_receiver(f"{broker.log}/$info", credit=1)
        assert receiver.link.remote_source.address == f"{broker.log}/$info"


@rule("ES-55")
def one_message_comes_for_each_credit(broker: BrokerUnderTest) -> None:
    """By 8 the client's part binds nobody; this is the node's part of it."""
    with broker.visit() as connection:
        receiver = connection.create_receiver(f"{broker.log}/$info", credit=0)
        receiver.link.flow(1)
        connection.wait(lambda: receiver.fetcher.has_message, timeout=broker.timeout_s, msg="the info")
        assert isinstance(receiver.fetcher.pop().body, dict), "the body is no map"
        assert receiver.link.credit == 0
        receiver.link.drain(0)
        connection.wait(lambda: not receiver.link.draining(), timeout=broker.timeout_s, msg="the end of the drain")
        assert not receiver.fetcher.has_message, "a second info came for one credit"


@rule("ES-56")
def more_credit_repeats_it(broker: BrokerUnderTest) -> None:
    with broker.visit() as connection:
        receiver = connection.create_receiver(f"{broker.log}/$info", credit=3)
        for _ in range(3):
            try:
                assert "partitions" in receiver.receive(timeout=broker.timeout_s).body
            except Timeout:
                raise NotApplicable("6: the node may space the infos in time; none came while we waited") from None


@rule("ES-57")
def info_lists_every_partition(broker: BrokerUnderTest) -> None:
    partition = broker.partitions[0]
    [event] = broker.stored(marks(1), partition)
    entries = broker.info()
    assert entries, "no partition is listed"
    for entry in entries:
        assert entry.keys() >= KEYS, f"an entry has only {sorted(entry)}"
        assert isinstance(entry["partition"], symbol)
        for key in ("earliest-offset", "latest-offset"):
            assert entry[key] is None or isinstance(entry[key], symbol), f"{key} is {entry[key]!r}"
    [ours] = [entry for entry in entries if str(entry["partition"]) == partition]
    assert str(ours["earliest-offset"]) <= event.offset
    assert str(ours["latest-offset"]) >= event.offset
    for entry in entries:
        with broker.visit() as connection:
            broker.sender(connection, str(entry["partition"]))
    try:
        empty = broker.make("empty", 2)
    except LookupError:
        return  # offsets of an empty log cannot be looked at
    for entry in broker.info(empty):
        assert (entry["earliest-offset"], entry["latest-offset"]) == (None, None), "an empty partition has offsets"


@rule("ES-58")
def other_keys_are_free(broker: BrokerUnderTest) -> None:
    for entry in broker.info():
        assert all(isinstance(key, str) for key in entry), "a key is no text"
