"""Discovery of the other nodes, as a node's configuration says.

The rule: nothing of the node is opened before it knows the voters; the data directory's lock is taken before the node
makes itself known, so that a process started twice by mistake never registers twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.discovery import (
    Changed,
    Discovery,
    Member,
    RememberedCluster,
    SeedDiscovery,
    StaticDiscovery,
    ZooKeeperDiscovery,
    ZooKeeperOptions,
)
from cluster.rpc import Members, ask_to_join
from cluster.versions import OURS
from node.config import Config, ConfigError
from node.startup.listener_security import peer_tls_of
from node.storage.data_directory import is_complete
from node.storage.fsync import make_directory


class NodeDiscovery:
    def __init__(self, config: Config, version: str) -> None:
        self._config = config
        self._version = version
        self._memory: RememberedCluster | None = None
        self._discovery: Discovery | None = None
        self.founders: tuple[int, ...] = ()
        """Nodes with which a cluster begins, if this directory is empty; none: it joins one."""

    async def join(self) -> Mapping[int, str]:
        """Wait for the nodes: node id -> address for other nodes. Raises DiscoveryError, ConfigError."""
        config = self._config
        me = Member(
            config.node.id,
            config.rpc_addresses.get(config.node.id, ""),
            {section.name: str(section.advertised) for section in config.listener},
            self._version,
        )
        if config.cluster.join:
            self._discovery = self._seeds(me)
        elif config.discovery.kind == "static":
            self._discovery = StaticDiscovery(config.cluster.name, me, config.rpc_addresses)
        else:
            options = _options(config)
            self._discovery = ZooKeeperDiscovery(config.cluster.name, me, options, self._remembered())
        addresses = await self._discovery.join()
        self.founders = () if config.cluster.join else tuple(sorted(addresses))
        return addresses

    def _seeds(self, me: Member) -> SeedDiscovery:
        config = self._config
        tls = peer_tls_of(config.cluster)

        async def ask(seed: int, address: str) -> Members:
            return await ask_to_join(config.cluster.name, config.node.id, seed, address, OURS, tls)

        memory = self._remembered()
        has_data = is_complete(Path(config.node.data_dir))
        return SeedDiscovery(me, config.rpc_addresses, ask, memory, has_data=has_data)

    def _remembered(self) -> RememberedCluster:
        data_dir = Path(self._config.node.data_dir)
        make_directory(data_dir)  # durably: what is remembered in it must be there after a loss of power
        self._memory = RememberedCluster(data_dir)
        return self._memory

    @property
    def cluster_number(self) -> int:
        """Identity of the cluster that this node joined, as its seed told it; 0: it founded one, or ZooKeeper names
        it."""
        known = self._memory.cluster if self._memory is not None and self._config.cluster.join else None
        return 0 if known is None else int(known["id"], 16)

    @property
    def waiting_for(self) -> str:
        return "its start" if self._discovery is None else self._discovery.waiting_for

    def subscribe(self, changed: Changed) -> None:
        """Tell `changed` the present members at once, and later changes."""
        assert self._discovery is not None
        self._discovery.subscribe(changed)
        changed(self._discovery.members())

    async def close(self) -> None:
        """Close the discovery. Idempotent."""
        if self._discovery is not None:
            await self._discovery.close()
        if self._memory is not None:
            self._memory.close()


def _options(config: Config) -> ZooKeeperOptions:
    section = config.discovery.zookeeper
    return ZooKeeperOptions(
        hosts=",".join(section.hosts),
        root=section.root,
        initial_nodes=section.initial_nodes,
        session_timeout_s=section.session_timeout_s,
        auth=_credentials(section.auth_file),
        clients_may_read=section.clients_may_read,
        tls=section.tls,
        ca_file=section.ca_file,
        cert_file=section.cert_file,
        key_file=section.key_file,
        verify_hostname=section.verify_hostname,
    )


def _credentials(path: str) -> str:
    if not path:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"discovery.zookeeper.auth_file: {path} cannot be read: {error}") from error
    if not text.partition(":")[0] or not text.partition(":")[2] or "\n" in text:
        raise ConfigError(f"discovery.zookeeper.auth_file: {path} must hold one line, user:password")
    return text
