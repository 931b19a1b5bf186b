"""The configuration of one node: a TOML file, checked before anything is started.

The problem: a node that starts with a misspelt option, or with an address it cannot have, does harm later and
elsewhere. The rule: every key is known, every value is checked here, and what is wrong is said with the key's path,
the reason and what to write instead; nothing has a silent fallback. Rejected alternative: reading keys where they
are needed; it spreads the words over the tree and finds errors only when the code path runs.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from node.listener.connections.proxy_header import Network
from node.security.authentication import is_loopback
from node.startup.config_errors import described

MAX_NODES = 31
"""Every node has a stream to every other one; what that costs is known up to here (docs/cost.md)."""

MAX_PROXIES = 64
"""Networks of proxies of a listener: each connection is looked up in all of them."""

MAX_LISTENERS = 16
MAX_LISTENER_NAME_CHARACTERS = 200
MAX_ADDRESS_CHARACTERS = 300
"""Bounds of the metadata (`cluster/metadata/command_validation.py`): a node with more would never be registered."""

DEFAULT_MAX_MESSAGE_SIZE = 4 * 1024 * 1024
"""Default limit of a message in bytes. One message is one Raft entry at most, and an entry must pass between nodes in
one gRPC message."""

MAX_MESSAGE_SIZE_LIMIT = 16 * 1024 * 1024
"""Highest limit of a message in bytes. Above this a single entry stalls heartbeats of other groups on the same
stream."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class ConfigError(ValueError):
    """Raised when the configuration cannot be used; the message names the key and what to do."""


class HostAndPort(msgspec.Struct, frozen=True):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def reached_address(text: str, key: str) -> HostAndPort:
    """Parse an address that others connect to: one that stands for all addresses of a host is refused."""
    address = parse_address(text, key)
    if _is_every_address(address.host):
        raise ConfigError(
            f"{key}: {address.host} means every address of this host, and nobody else can connect to it; "
            "write the name or address by which others reach this node"
        )
    return address


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == "0"


def parse_address(text: str, key: str, *, allow_zero: bool = False) -> HostAndPort:
    """Parse `host:port` or `[v6]:port` into an :class:`HostAndPort`; `key` names the setting in errors."""
    host, separator, port_text = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not host or not port_text.isdigit():
        raise ConfigError(f"{key}: {text!r} is not an address; write host:port, for example 127.0.0.1:5672")
    if len(text) > MAX_ADDRESS_CHARACTERS:
        raise ConfigError(f"{key}: the address has {len(text)} characters; at most {MAX_ADDRESS_CHARACTERS}")
    port = int(port_text)
    if not (0 if allow_zero else 1) <= port <= 65535:
        raise ConfigError(f"{key}: port {port} is outside 1..65535")
    return HostAndPort(host, port)


class NodeSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Identity of the node, and where it keeps its data."""

    # number of the node in its cluster; with another data directory it must be readmitted
    id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    data_dir: str  # directory for everything that the node keeps; nothing in it may be deleted by hand
    # where the node stands: a rack, a room, a zone; new partitions are spread over them
    rack: Annotated[str, msgspec.Meta(max_length=63, pattern=r"\A[A-Za-z0-9._-]*\Z")] = ""


class ConfiguredPeer(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One node of the list `cluster.peers`."""

    id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # number of that node
    address: str  # host:port at which the other nodes reach it


class ClusterSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Cluster that the node belongs to, and TLS between its nodes.

    The three files go together. Beyond loopback a node starts without them only with `peers_without_tls`.
    """

    name: str  # name of the cluster, 1 to 63 of A-Z a-z 0-9 . _ -; nodes of another name are refused
    # where to begin: every node that the cluster is founded with, this one included; or, with `join`, some of its nodes
    peers: list[ConfiguredPeer] = []
    # host:port at which the other nodes reach this one; with discovery by ZooKeeper, or `join`
    address: str = ""
    # with an empty data_dir, join the cluster of `peers` and never found one; `holdfast node add` announces the node
    join: bool = False
    ca_file: str = ""  # authority that vouches for nodes, PEM
    cert_file: str = ""  # certificate of this node, PEM
    key_file: str = ""  # its key, PEM, not encrypted
    peers_without_tls: bool = False  # start without certificates although an address is not on loopback


class ZooKeeperSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """ZooKeeper servers that tell who the nodes are."""

    hosts: list[str] = []  # its servers, host:port
    root: str = "/holdfast"  # path beneath which clusters are: this one is ROOT/NAME
    # so many nodes registered at once begin the cluster, and are its members for good
    initial_nodes: Annotated[int, msgspec.Meta(ge=1, le=MAX_NODES)] = 3
    # a registration goes after so long without a word; between 2 and 20 ticks of ZooKeeper
    session_timeout_s: Annotated[float, msgspec.Meta(ge=1.0, le=300.0)] = 6.0
    auth_file: str = ""  # file with one line, user:password; then only nodes can write registrations
    clients_may_read: bool = True  # with `auth_file`: others may look addresses up
    tls: bool = False  # connect with TLS
    ca_file: str = ""  # authority of ZooKeeper's certificates, PEM; empty: the system's
    cert_file: str = ""  # certificate of this node for ZooKeeper, PEM
    key_file: str = ""  # its key, PEM
    verify_hostname: bool = True  # check that the certificate is for the name that was dialled


class DiscoverySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Way in which nodes learn of each other."""

    # `static`: from `cluster.peers`; `zookeeper`: from registrations there
    kind: Literal["static", "zookeeper"] = "static"
    zookeeper: ZooKeeperSection = ZooKeeperSection()


class CertificateSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Another certificate of a listener."""

    cert_file: str  # certificate with its chain, PEM
    key_file: str  # its key, PEM, not encrypted


class ListenerSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One AMQP listener; a node has at least one."""

    name: str = "default"  # name by which clients and other nodes choose among listeners
    bind: str = "127.0.0.1:5672"  # host:port to listen at
    advertise: str = ""  # host:port that all nodes hand out to clients for this one; empty: that of `bind`
    # whether links are sent to the leader: where the client can follow, always, or never
    redirect: Literal["auto", "always", "never"] = "auto"
    # largest message in bytes
    max_message_size: Annotated[int, msgspec.Meta(ge=1024, le=MAX_MESSAGE_SIZE_LIMIT)] = DEFAULT_MAX_MESSAGE_SIZE
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # connections at once, at most
    idle_timeout_s: Annotated[float, msgspec.Meta(ge=1.0)] = 60.0  # a peer that is silent for so long is gone
    # what becomes of a group's member for which there is no partition: its attach waits, or is refused
    group_full: Literal["hold", "refuse"] = "hold"
    group_hold_s: Annotated[float, msgspec.Meta(ge=0.0)] = 30.0  # so long it waits
    # addresses of nodes, by id, for clients of this listener, in place of the advertised ones; "": clients reach it
    # nowhere, and are told of no address
    address_map: dict[str, str] = {}
    # `on`: from the first byte; `start`: plain until a client asks for TLS in AMQP's words; `any`: both
    tls: Literal["off", "on", "start", "any"] = "off"
    cert_file: str = ""  # certificate with its chain, PEM
    key_file: str = ""  # its key, PEM, not encrypted
    client_ca_file: str = ""  # authorities whose certificates clients may show, PEM
    client_certificate: Literal["optional", "required"] = "optional"  # whether clients must show one
    server_names: dict[str, CertificateSection] = {}  # other certificates, for clients that ask for those names
    # addresses or networks of proxies: their connections must begin with a PROXY header, version 2, with the client
    proxies: list[str] = []

    @property
    def bind_address(self) -> HostAndPort:
        return parse_address(self.bind, f"listener.{self.name}.bind")

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """`proxies`, read. Raises ConfigError."""
        return tuple(_network(text, f"listener.{self.name}.proxies") for text in self.proxies)

    @property
    def advertised(self) -> HostAndPort:
        return reached_address(self.advertise or self.bind, f"listener.{self.name}.advertise")


class StorageSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Disk and memory of the node, and when an event counts as stored."""

    # `fsync`: acknowledged means on the disks of a majority. `replicated`: with the operating systems of a majority; it
    # survives the death of processes, not a power loss that strikes a majority at once
    durability: Literal["fsync", "replicated"] = "fsync"
    # below so much free space new events are refused
    min_free_bytes: Annotated[int, msgspec.Meta(ge=0)] = 256 * 1024 * 1024
    # events are trimmed although a replica lacks them, once it was silent for so long
    retention_waits_s: Annotated[float, msgspec.Meta(ge=0.0)] = 60.0
    # limit of copies for this node alone, if it is lower than the cluster's pace (`holdfast cluster settings`)
    catch_up_bytes_per_s: Annotated[int, msgspec.Meta(ge=64 * 1024)] = 16 * 1024 * 1024 * 1024
    # many events at a time go to the disk past the page cache, where the file system can do that: cheaper, but
    # consumers far behind read the disk. What is durable when is the same
    direct_writes: bool = True
    # memory for the newest events of partitions that this node leads, for consumers near the end; once used it is kept
    cache_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 256 * 1024 * 1024

    @property
    def direct(self) -> Literal["never", "synced", "drained"]:
        """Mode of writing past the page cache, for `DiskOptions`."""
        if not self.direct_writes:
            return "never"
        return "synced" if self.durability == "fsync" else "drained"


class LogSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Log of the node itself."""

    level: Literal["debug", "info", "warning", "error"] = "info"  # lines below this level are left out
    file: str = ""  # file for the log; empty: standard error


class MonitoringSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """HTTP port of `/metrics` and `/health/...`, without login and TLS: for trusted networks."""

    bind: str = ""  # host:port to listen at; empty: none


class CheckpointsSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """HTTP port of the checkpoint store for processors of Event Hubs: see docs/clients/event-hubs.md."""

    bind: str = ""  # host:port to listen at; empty: none


class TokenSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Tokens (JWT) of an identity provider; exactly one of `keys_file` and `jwks_url` is given."""

    keys_file: str = ""  # file with the keys that sign tokens, PEM or JWKS
    jwks_url: str = ""  # URL of the key set (JWKS)
    issuer: str = ""  # issuer that a token must name; empty: any
    audience: str = ""  # audience that a token must name; empty: any
    # algorithms that are taken
    algorithms: tuple[
        Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...
    ] = ("RS256", "ES256")
    user_claim: str = "sub"  # claim that holds the user's name
    roles_claim: str = ""  # claim that holds roles; empty: tokens bring none


class SecuritySection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Access without a credential, and administrators: see docs/operate/secure.md."""

    # where clients without a credential are let in while the cluster knows neither users nor grants
    anonymous: Literal["loopback", "never", "always"] = "loopback"
    administrators: list[str] = []  # names that may do everything, however they log in
    # administrator that is added to a cluster without users, by `holdfast user keys`; nobody is let in anonymously then
    first_user_file: str = ""
    plain_without_tls: bool = False  # offer SASL PLAIN outside TLS
    # file with the key that seals keys of rules, the same on every node; empty: there can be no rules
    secrets_file: str = ""
    audit_file: str = ""  # file of the audit log; empty: none
    # size of the audit log: two files of half of it
    audit_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024)] = 64 * 1024 * 1024
    token: TokenSection | None = None


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole node configuration; :func:`load` checks what the types cannot say."""

    node: NodeSection
    cluster: ClusterSection
    discovery: DiscoverySection = DiscoverySection()
    listener: list[ListenerSection] = []
    storage: StorageSection = StorageSection()
    log: LogSection = LogSection()
    monitoring: MonitoringSection = MonitoringSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    security: SecuritySection = SecuritySection()

    @property
    def rpc_addresses(self) -> dict[int, str]:
        """Configured addresses for other nodes: every node's, or with discovery by ZooKeeper only this one's."""
        own = {self.node.id: self.cluster.address} if self.cluster.address else {}
        return {peer.id: peer.address for peer in self.cluster.peers} | own


def parse(text: str, origin: str = "configuration") -> Config:
    """Parse and check a TOML text.

    Raises:
        ConfigError: not TOML, an unknown key, a wrong type or a value that cannot work.
    """
    try:
        document = tomllib.loads(text)
        config = msgspec.convert(document, Config)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin}: not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {described(error, Config, document)}") from error
    try:
        _check(config)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error
    return config


def load(path: Path) -> Config:
    """Read and check a configuration file; :class:`ConfigError` says what to mend."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))


def _check(config: Config) -> None:
    if not config.node.data_dir:
        raise ConfigError("node.data_dir: is empty; write the directory that this node keeps its data in")
    if not all(config.security.administrators):
        raise ConfigError("security.administrators: a name is empty; write the names of users, or leave it out")
    if not _NAME.fullmatch(config.cluster.name):
        raise ConfigError(f"cluster.name: {config.cluster.name!r} must be 1-63 of A-Z a-z 0-9 . _ -")
    cluster = config.cluster
    if len({bool(path) for path in (cluster.ca_file, cluster.cert_file, cluster.key_file)}) > 1:
        raise ConfigError("cluster.ca_file, cert_file, key_file: TLS between nodes needs all three")
    if config.discovery.kind == "zookeeper":
        _check_zookeeper(config)
    else:
        _check_peers(config)
    _check_peer_tls(config)
    _check_listeners(config)
    token = config.security.token
    if token is not None and bool(token.keys_file) == bool(token.jwks_url):
        raise ConfigError("security.token: give keys_file or jwks_url, one of them")
    if token is not None and not token.algorithms:
        raise ConfigError("security.token.algorithms: name at least one")


def _check_peers(config: Config) -> None:
    ids = [peer.id for peer in config.cluster.peers]
    if len(set(ids)) != len(ids):
        raise ConfigError(f"cluster.peers: a node id stands twice in {ids}")
    if config.cluster.join:
        _check_joining(config, ids)
    elif config.cluster.address:
        raise ConfigError(
            "cluster.address: is for discovery by ZooKeeper, or cluster.join; else it stands in cluster.peers"
        )
    elif config.node.id not in ids:
        raise ConfigError(
            f"cluster.peers: node.id {config.node.id} is not among {ids}; list every node, self included, or say "
            "cluster.join = true if the cluster is there already"
        )
    if len(ids) > MAX_NODES:
        raise ConfigError(f"cluster.peers: {len(ids)} nodes; a cluster has at most {MAX_NODES}")
    for peer in config.cluster.peers:
        reached_address(peer.address, f"cluster.peers (node {peer.id})")


def _check_joining(config: Config, ids: list[int]) -> None:
    own = config.node.id
    if not set(ids) - {own}:
        raise ConfigError("cluster.peers: a node that joins needs at least one other node there, to ask it")
    if own in ids and config.cluster.address:
        raise ConfigError("cluster.address: the node's own address stands in cluster.peers, too; leave one of them out")
    if own not in ids and not config.cluster.address:
        raise ConfigError("cluster.address: write host:port at which the other nodes reach this one")
    if config.cluster.address:
        reached_address(config.cluster.address, "cluster.address")


def _check_peer_tls(config: Config) -> None:
    cluster = config.cluster
    where = "cluster.address" if cluster.address else "cluster.peers"
    exposed = [
        address
        for address in [cluster.address, *(peer.address for peer in cluster.peers)]
        if address and not is_loopback(parse_address(address, where).host)
    ]
    if exposed and not cluster.ca_file and not cluster.peers_without_tls:
        raise ConfigError(
            f"{where}: whoever reaches {exposed[0]} could speak as a node; give cluster.ca_file, cert_file and "
            "key_file, or say peers_without_tls = true in [cluster] where nobody else can reach it"
        )
    if cluster.ca_file and cluster.peers_without_tls:
        raise ConfigError("cluster.peers_without_tls: there are certificates; leave one of the two out")


def _check_zookeeper(config: Config) -> None:
    section = config.discovery.zookeeper
    if config.cluster.join:
        raise ConfigError(
            "cluster.join: a node joins by the addresses of others, and not by ZooKeeper: leave discovery.kind out of "
            "its file, and list some nodes of the cluster in cluster.peers. The other nodes keep theirs"
        )
    if config.cluster.peers:
        raise ConfigError("cluster.peers: ZooKeeper tells who the nodes are; leave the list out, or discovery.kind")
    if not config.cluster.address:
        raise ConfigError("cluster.address: write host:port at which the other nodes reach this one")
    reached_address(config.cluster.address, "cluster.address")
    if not section.hosts:
        raise ConfigError('discovery.zookeeper.hosts: none given; write ["host:port", ...]')
    for host in section.hosts:
        parse_address(host, "discovery.zookeeper.hosts")
    if not section.root.startswith("/") or section.root.endswith("/"):
        raise ConfigError(f"discovery.zookeeper.root: {section.root!r} must begin with a slash and not end with one")
    if bool(section.cert_file) != bool(section.key_file):
        raise ConfigError("discovery.zookeeper.cert_file: goes with key_file; give both or neither")
    if not section.tls and (section.ca_file or section.cert_file):
        raise ConfigError("discovery.zookeeper.tls: certificates are given but tls is off; write tls = true")


def _check_listeners(config: Config) -> None:
    if config.monitoring.bind:
        parse_address(config.monitoring.bind, "monitoring.bind")
    if config.checkpoints.bind:
        parse_address(config.checkpoints.bind, "checkpoints.bind")
    if not config.listener:
        raise ConfigError('listener: none given; write at least one [[listener]] with bind = "host:port"')
    if len(config.listener) > MAX_LISTENERS:
        raise ConfigError(f"listener: {len(config.listener)} of them; a node has at most {MAX_LISTENERS}")
    names = [listener.name for listener in config.listener]
    if not all(names):
        raise ConfigError("listener.name: is empty; give it a name, or leave it out where there is one listener")
    if len(set(names)) != len(names):
        raise ConfigError(f"listener: a name stands twice in {names}")
    if any(len(name) > MAX_LISTENER_NAME_CHARACTERS for name in names):
        raise ConfigError(
            f"listener.name: longer than {MAX_LISTENER_NAME_CHARACTERS} characters; give it a shorter one"
        )
    for listener in config.listener:
        parse_address(listener.bind, f"listener.{listener.name}.bind")
        reached_address(listener.advertise or listener.bind, f"listener.{listener.name}.advertise")
        _check_tls(listener)
        _check_proxies(listener)
        for node, address in listener.address_map.items():
            if not node.isdigit():
                raise ConfigError(f"listener.{listener.name}.address_map: {node!r} is no node id")
            if address:
                reached_address(address, f"listener.{listener.name}.address_map.{node}")


def _check_proxies(listener: ListenerSection) -> None:
    if len(listener.proxies) > MAX_PROXIES:
        raise ConfigError(f"listener.{listener.name}.proxies: {len(listener.proxies)} of them; name a network instead")
    _ = listener.proxy_networks


def _network(text: str, where: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as problem:
        told = f"{where}: {text!r} is no address and no network such as 192.0.2.0/28 ({problem})"
        raise ConfigError(told) from None


def _check_tls(listener: ListenerSection) -> None:
    where = f"listener.{listener.name}"
    if listener.tls == "off":
        given = [key for key in ("cert_file", "key_file", "client_ca_file", "server_names") if getattr(listener, key)]
        if given:
            raise ConfigError(f'{where}.{given[0]}: is for TLS, which is off; write tls = "on", "start" or "any"')
        return
    if not listener.cert_file or not listener.key_file:
        raise ConfigError(f"{where}.tls: needs cert_file and key_file")
    if listener.client_certificate == "required" and not listener.client_ca_file:
        raise ConfigError(f"{where}.client_certificate: is checked against client_ca_file; give that as well")
    if listener.client_certificate == "required" and listener.tls != "on":
        raise ConfigError(f'{where}.client_certificate: a client without TLS shows none; write tls = "on"')
