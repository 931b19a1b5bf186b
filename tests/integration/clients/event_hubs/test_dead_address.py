"""What SDKs of Event Hubs do where the first address of their service name is of a node that is gone.

The name has two addresses, in a hosts file that only the program sees. Nothing listens at the first. Where such files
cannot be laid over the system's, the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients.event_hubs.floating_address import FloatingAddress
from tests.integration.clients.event_hubs.hub_cluster import HubCluster
from tests.integration.clients.event_hubs.programs import Sdk, each_sdk

DEAD, ALIVE, NAME = "127.0.0.1", "127.0.0.2", "localhost"
LOOK = f"import socket; print(*(found[4][0] for found in socket.getaddrinfo({NAME!r}, 80, type=socket.SOCK_STREAM)))"

FIRST_ONLY = {"java"}
"""SDKs that never try the second address: it takes the first that the JVM finds."""

TRIES = 3
"""Of such an SDK at the first address. Any of them could have been at the second."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubCluster]:
    made = HubCluster(tmp_path_factory.mktemp("hubs"))
    yield made
    complaints = made.cluster.complaints()
    made.cluster.close()
    assert not complaints


@pytest.fixture
def namespace(tmp_path: Path) -> list[str]:
    """The beginning of a command that sees both addresses, the dead one first."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{DEAD} {NAME}\n{ALIVE} {NAME}\n")
    beginning = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]
    look = subprocess.run([*beginning, sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    if look.stdout.split() != [DEAD, ALIVE]:
        pytest.skip(f"no hosts file of its own can be had here: {look.stdout}{look.stderr}")
    return beginning


@each_sdk("rust")  # its program with a Blob store sends nothing
def test_the_second_address_is_tried_where_the_sdk_does_so(stored: HubCluster, namespace: list[str], sdk: Sdk) -> None:
    hub = f"Second-{sdk.name}"
    stored.make(hub)
    with FloatingAddress(lambda: stored.cluster.addresses, ALIVE) as name:
        port = name.address.rpartition(":")[2]
        producer = sdk.producer(stored, hub, f"{NAME}:{port}", before=namespace)
        if sdk.name in FIRST_ONLY:
            with socket.create_server((DEAD, int(port))) as first:
                for _ in range(TRIES):
                    first.accept()[0].close()
            producer.kill()
            assert not producer.acknowledged
        else:
            producer.until(lambda: producer.acknowledged, "it sends by the second address")
            producer.finish()
