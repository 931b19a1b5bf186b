"""Addresses with words behind a question mark: read exactly, or refused with the word that is wrong."""

from __future__ import annotations

import pytest

from holdfast import protocol
from node.listener.attach.address_form import OF_SOURCE, OF_TARGET, AddressForm, log_of, read_form
from node.listener.errors import Refused


def partition(name: str) -> dict[str, str]:
    return {protocol.LINK_PARTITION: name}


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("orders", AddressForm("orders")),
        ("orders?partition=3", AddressForm("orders", partition("3"))),
        ("orders?start=earliest", AddressForm("orders", {}, "@earliest")),
        ("orders?start=latest&partition=0", AddressForm("orders", partition("0"), "@latest")),
        ("orders?start=offset:000000000000000a", AddressForm("orders", {}, "000000000000000a")),
        ("orders?start=time:1700000000000", AddressForm("orders", {}, None, 1_700_000_000_000)),
        ("orders?start=time:2023-11-14T22:13:20Z", AddressForm("orders", {}, None, 1_700_000_000_000)),
        ("orders?group=a%20b", AddressForm("orders", {protocol.LINK_CONSUMER_GROUP: "a b"})),
    ],
)
def test_a_source_is_read(address: str, meant: AddressForm) -> None:
    assert read_form(address, OF_SOURCE) == meant
    assert log_of(address) == "orders"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("orders?", "write name=value"),
        ("orders?partition", "write name=value"),
        ("orders?partition=", "write name=value|has no value"),
        ("orders?offset=3", "'offset' is not known here; there are partition, start, group"),
        ("orders?partition=1&partition=2", "stands twice"),
        ("orders?start=yesterday", "start is earliest, latest"),
        ("orders?start=time:soon", "'soon' is no time"),
        ("orders?start=time:2023-11-14T22:13:20", "names no time zone"),
        ("orders?" + "&".join(f"a{number}=1" for number in range(9)), "write name=value"),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_word(address: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as refused:
        read_form(address, OF_SOURCE)
    assert refused.value.error.condition == "amqp:invalid-field"


def test_a_target_has_a_partition_and_a_key_alone() -> None:
    assert read_form("orders?partition=3", OF_TARGET) == AddressForm("orders", partition("3"))
    assert read_form("orders?key=a%26b", OF_TARGET) == AddressForm("orders", key="a&b")
    with pytest.raises(Refused, match="the key has 4097 characters; at most 4096"):
        read_form(f"orders?key={'k' * 4097}", OF_TARGET)
    with pytest.raises(Refused, match="'start' is not known here; there are partition, key"):
        read_form("orders?start=earliest", OF_TARGET)
