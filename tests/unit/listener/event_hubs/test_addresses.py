"""Addresses of Event Hubs, as SDKs write them."""

from __future__ import annotations

import pytest

from node.listener.event_hubs.addresses import HubAddress, is_hub_form, path_of, read_address


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("hub", HubAddress("hub")),
        ("/hub", HubAddress("hub")),
        ("amqps://ns.example:5671/hub", HubAddress("hub")),
        ("amqps://127.0.0.1/hub/Partitions/3", HubAddress("hub", None, "3")),
        ("hub/ConsumerGroups/$Default/Partitions/0", HubAddress("hub", "$Default", "0")),
        ("sb://h/hub/consumergroups/$DEFAULT/partitions/0", HubAddress("hub", "$Default", "0")),
        ("a.b-c_d/ConsumerGroups/g.1/Partitions/11", HubAddress("a.b-c_d", "g.1", "11")),
        ("team/orders/ConsumerGroups/a/b/Partitions/0", HubAddress("team/orders", "a/b", "0")),
        ("Partitions/ConsumerGroups/Partitions/Partitions/0", HubAddress("Partitions", "partitions", "0")),
        ("hub/ConsumerGroups/Billing/Partitions/0", HubAddress("hub", "billing", "0")),
        ("hub/nonsense", HubAddress("hub/nonsense")),
    ],
)
def test_an_address_is_read_from_its_right_end(address: str, meant: HubAddress) -> None:
    assert read_address(address) == meant


def test_addresses_of_logs_are_not_of_event_hubs_by_their_form() -> None:
    own = ["trades", "trades/$info", "$management", "$cbs", "$reply/7"]
    assert not any(map(is_hub_form, own))
    assert all(map(is_hub_form, ["/trades", "trades/Partitions/0", "amqp://host/trades"]))


def test_an_audience_is_known_by_its_path() -> None:
    assert path_of("sb://host:5672/hub/consumergroups/g/") == "hub/consumergroups/g"
    assert path_of("hub") == "hub"
    assert path_of("amqps://host") == ""
