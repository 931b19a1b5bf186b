"""What a receiver's attach says beside its hub and partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from node.listener.event_hubs.addresses import HubAddress
from node.listener.event_hubs.hub_plan import receiver_terms

GEO = "com.microsoft:georeplication"


@pytest.mark.parametrize(
    ("opened_with", "wanted", "resets"),
    [
        ({"framework": ".NET 8.0.0"}, (GEO,), True),
        ({"framework": ".NET 8.0.0"}, (), False),
        ({"framework": "Go"}, (GEO,), False),
        ({"framework": 7}, (GEO,), False),
        ({}, (GEO,), False),
    ],
)
def test_only_a_processor_that_knows_how_is_told_to_begin_anew(
    opened_with: dict[str, Any], wanted: tuple[str, ...], resets: bool
) -> None:
    link: Any = SimpleNamespace(remote_properties={}, remote_desired_capabilities=wanted, peer_properties=opened_with)
    assert receiver_terms(link, HubAddress("orders", "billing", "0")).resets is resets
