"""A cluster to which a test adds nodes, each with a list of seeds, and from which it takes nodes away."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.integration.clusters.cluster import Cluster, NodeFiles, wait_until
from tests.ports import free_ports


class GrowingCluster(Cluster):
    def join(self, node: int, *, seeds: Iterable[int], announce: bool = True, wait: bool = True) -> None:
        """Start a new node that asks the seeds."""
        self.prepare(node, seeds=seeds)
        if announce:
            self.call(lambda admin: admin.add_node(node))
        self.start(node, wait=wait)

    def prepare(self, node: int, *, seeds: Iterable[int]) -> None:
        """Write the files of a node that joins, and do not start it."""
        home = self.directory / f"node{node}"
        home.mkdir(parents=True)
        ports = iter(free_ports(5))
        amqp = {name: f"127.0.0.1:{next(ports)}" for name in ("default", "never", "always")}
        self.monitoring[node] = f"127.0.0.1:{next(ports)}"
        files = NodeFiles(node, home, f"127.0.0.1:{next(ports)}", amqp, home / "data")
        self.nodes[node] = files
        files.config_path.write_text(self._toml_of_joiner(files, [self.nodes[seed] for seed in seeds]))

    def _toml_of_joiner(self, node: NodeFiles, seeds: list[NodeFiles]) -> str:
        listed = ", ".join(f'{{ id = {seed.id}, address = "{seed.rpc}" }}' for seed in seeds)
        listeners = "\n".join(f'[[listener]]\nname = "{name}"\nbind = "{at}"' for name, at in node.amqp.items())
        return (
            f"[node]\nid = {node.id}\ndata_dir = {json.dumps(str(node.data_dir))}\n"
            f'[cluster]\nname = {json.dumps(self.name)}\njoin = true\naddress = "{node.rpc}"\npeers = [{listed}]\n'
            f'{listeners}\n[storage]\ndurability = "{self.settings.durability}"\n'
            f'[monitoring]\nbind = "{self.monitoring[node.id]}"\n[log]\nlevel = "info"\n'
        )

    # -- what the cluster says

    def node_list(self) -> dict[int, dict[str, Any]]:
        return {int(one["node"]): one for one in self.call(lambda admin: admin.list_nodes())}

    def wait_nodes(self, *wanted: int) -> None:
        """Wait until the cluster has these nodes, all of them up."""

        def as_wanted() -> bool:
            nodes = self.node_list()
            return sorted(nodes) == sorted(wanted) and all(one["up"] for one in nodes.values())

        wait_until(as_wanted, f"the nodes {wanted}, all up")

    def wait_voters(self, wanted: int) -> None:
        """Wait until so many nodes vote on metadata, and alone: while two sets decide, both are needed."""

        def as_wanted() -> bool:
            status = self.call(lambda admin: admin.cluster_status())["metadata"]
            return bool(status["settled"]) and len(status["voters"]) == wanted

        wait_until(as_wanted, f"{wanted} voters of the metadata")

    def metadata_voters(self) -> list[int]:
        status = self.call(lambda admin: admin.cluster_status())
        return [int(node) for node in status["metadata"]["voters"]]
