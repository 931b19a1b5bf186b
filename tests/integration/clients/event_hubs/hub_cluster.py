"""A cluster whose nodes keep checkpoints of processors, and connection strings for its hubs and its store."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from holdfast.client.transport.security.credentials import Security
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clusters.cluster import Cluster, ClusterSettings
from tests.ports import free_ports

HUB, GROUP, PARTITIONS = "Orders", "Billing", 4
ROOT = "very secret"


class HubCluster:
    """A cluster with a checkpoint store at every node, and a hub."""

    def __init__(self, directory: Path, *, nodes: int = 1, closed: bool = False) -> None:
        ports = free_ports(nodes)
        self.doors = [f"127.0.0.1:{port}" for port in ports]
        self.password = directory / "password"
        self.password.write_text(ROOT)
        secrets = directory / "secrets.key"
        secrets.write_text(base64.b64encode(os.urandom(32)).decode())
        self.cluster = Cluster(directory / "cluster", ClusterSettings(nodes=nodes))
        for node, door in zip(self.cluster.nodes.values(), self.doors, strict=True):
            more = (
                f'\n[checkpoints]\nbind = "{door}"\n[security]\nsecrets_file = "{secrets}"\nplain_without_tls = true\n'
            )
            node.config_path.write_text(node.config_path.read_text() + more)
        self.cluster.start()
        self.make(HUB)
        self.account, self.key, self.other_key = "any", base64.b64encode(b"any").decode(), ""
        if closed:
            self.cluster.call(lambda admin: admin.add_user("root", ROOT, roles=["admin"]))
            self.cluster.settings.security = Security(user="root", password=ROOT, mechanism="PLAIN")
            self.cluster.call(lambda admin: admin.add_rule("reader", ["listen"], scope=HUB))
            self.cluster.call(lambda admin: admin.add_rule("sender", ["send"], scope=HUB))
            self.account, self.key = "reader", self.cluster.call(lambda admin: admin.rule_keys("reader"))["primary"]
            self.other_key = self.cluster.call(lambda admin: admin.rule_keys("sender"))["primary"]

    def make(self, hub: str) -> None:
        self.cluster.create(hub, PARTITIONS)
        self.cluster.wait_led(hub)

    def text(self, node: int = 1, *, hub: str = HUB, address: str = "") -> str:
        rule = () if self.account == "any" else (self.account, self.key)
        return connection_string(address or self.cluster.address(node), hub, *rule)

    def store_text(self, door: str = "", account: str = "", key: str = "") -> str:
        account = account or self.account
        return (
            f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key or self.key};"
            f"BlobEndpoint=http://{door or self.doors[0]}/{account}"
        )

    def store(self, **options: str) -> Any:
        """The Python SDK's own store."""
        from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore  # it may be missing

        return BlobCheckpointStore.from_connection_string(self.store_text(**options), "checkpoints")

    def describe(self, group: str = GROUP.lower(), hub: str = HUB) -> list[dict[str, Any]]:
        return list(self.cluster.call(lambda admin: admin.describe_group(hub, group))["partitions"])
