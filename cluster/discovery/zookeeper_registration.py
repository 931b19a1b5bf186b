"""One comparison of what ZooKeeper holds with what it should hold; blocking, run on the worker thread.

The rule: a step may be broken off anywhere and begun again. It creates, it deletes only what is provably our own from
before (the data directory's token), and it never overwrites the description of a cluster.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from cluster.discovery.api import DiscoveryError, Member
from cluster.discovery.remembered_cluster import RememberedCluster

FORMAT = 1

ANSWER_WITHIN_S = 5.0
"""Time for ZooKeeper to answer one request; kazoo itself would wait as long as it is disconnected."""

REGISTER_TRIES = 4
"""Create, look, delete what is stale, create again; more often only when somebody works against us."""


@dataclass(frozen=True)
class ZooKeeperOptions:
    hosts: str  # host:port,host:port
    root: str = "/holdfast"
    initial_nodes: int = 3
    session_timeout_s: float = 6.0
    auth: str = ""  # user:password
    clients_may_read: bool = True
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody else is registered under our id."""

    rpc_address: str


@dataclass(frozen=True, slots=True)
class Seen:
    registration: Foreign | None  # None: ours
    members: Mapping[int, Member]
    cluster_id: str
    voters: Mapping[int, str] | None


class Registration:
    def __init__(self, cluster: str, me: Member, options: ZooKeeperOptions, memory: RememberedCluster) -> None:
        self.base = f"{options.root.rstrip('/')}/{cluster}"
        self.poke: Callable[..., None] = _nobody
        self._me = me
        self._options = options
        self._memory = memory
        self._own = _encode(me, memory.token)
        self._acl = _acl(options)

    def run(self, client: Any) -> Seen:
        """Register this node, and return what was seen. Raises KazooException, KazooTimeoutError, DiscoveryError."""
        self._wait(client.ensure_path_async(f"{self.base}/nodes", acl=self._acl))
        registration = self._register(client)
        members = self._members(client)
        description = self._description(client)
        if description is None and registration is None:
            description = self._begin(client, members)
        if description is None:
            return Seen(registration, members, "", None)
        return Seen(registration, members, str(description["id"]), _voters(description))

    # -- this node

    def _register(self, client: Any) -> Foreign | None:
        path = f"{self.base}/nodes/{self._me.node}"
        for _ in range(REGISTER_TRIES):
            stat = self._wait(client.exists_async(path, watch=self.poke))
            try:
                if stat is None:
                    self._wait(client.create_async(path, self._own, acl=self._acl, ephemeral=True))
                    continue  # look again: that also sets the watch on what was created
                data, stat = self._wait(client.get_async(path))
                if client.client_id is not None and stat.ephemeralOwner == client.client_id[0]:
                    if data != self._own:
                        self._wait(client.set_async(path, self._own))
                    return None
                other = _decode(data)
                if other.get("token") != self._memory.token:
                    return Foreign(str(other.get("rpc", "an unknown address")))
                self._wait(client.delete_async(path, version=stat.version))
            except (NoNodeError, NodeExistsError, BadVersionError):
                continue  # it changed while we looked
        raise DiscoveryError(f"{path} keeps changing: are two processes at work on one data_dir?")

    # -- all nodes

    def _members(self, client: Any) -> dict[int, Member]:
        children = self._wait(client.get_children_async(f"{self.base}/nodes", watch=self.poke))
        found: dict[int, Member] = {}
        for name in sorted(children):
            try:
                data, _ = self._wait(client.get_async(f"{self.base}/nodes/{name}", watch=self.poke))
            except NoNodeError:
                continue
            member = _member(_decode(data))
            if member is not None:
                found[member.node] = member
        return found

    # -- the cluster

    def _description(self, client: Any) -> dict[str, Any] | None:
        try:
            data, _ = self._wait(client.get_async(f"{self.base}/cluster"))
        except NoNodeError:
            return None
        description = _decode(data)
        if description.get("format") != FORMAT:
            raise DiscoveryError(f"{self.base}/cluster has a format that this version does not know: upgrade this node")
        return description

    def _begin(self, client: Any, members: Mapping[int, Member]) -> dict[str, Any] | None:
        """Found the cluster, or tell ZooKeeper again what it has lost. One node's attempt counts."""
        known = self._memory.cluster
        if known is None:
            if len(members) < self._options.initial_nodes:
                return None
            chosen = sorted(members)[: self._options.initial_nodes]
            voters = {str(node): members[node].rpc_address for node in chosen}
            known = {"id": uuid.uuid4().hex, "voters": voters}
        data = json.dumps({"format": FORMAT, **known}).encode()
        with contextlib.suppress(NodeExistsError):  # another node was first; what it wrote holds
            self._wait(client.create_async(f"{self.base}/cluster", data, acl=self._acl))
        return self._description(client)

    def _wait(self, result: Any) -> Any:
        return result.get(timeout=ANSWER_WITHIN_S)


def _nobody(*_: object) -> None:
    """No-op, before anybody waits."""


def _acl(options: ZooKeeperOptions) -> list[Any]:
    if not options.auth:
        return list(OPEN_ACL_UNSAFE)
    user, _, password = options.auth.partition(":")
    nodes_only = [make_digest_acl(user, password, all=True)]
    return nodes_only + ([make_acl("world", "anyone", read=True)] if options.clients_may_read else [])


def _encode(member: Member, token: str) -> bytes:
    return json.dumps(
        {
            "format": FORMAT,
            "node": member.node,
            "token": token,
            "rpc": member.rpc_address,
            "listeners": dict(member.listeners),
            "version": member.version,
        }
    ).encode()


def _decode(data: bytes) -> dict[str, Any]:
    """Decode what others wrote; {} when it is not ours to read."""
    try:
        content = json.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _member(content: Mapping[str, Any]) -> Member | None:
    try:
        listeners = {str(name): str(address) for name, address in content["listeners"].items()}
        return Member(int(content["node"]), str(content["rpc"]), listeners, str(content.get("version", "")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # somebody else's writing


def _voters(description: Mapping[str, Any]) -> dict[int, str]:
    return {int(node): str(address) for node, address in description["voters"].items()}
