"""Mutual TLS between nodes: this port refuses a caller without the certificate of a node of this cluster.

Problem: a stranger at a node's port could send Raft messages in another node's name, append, read, or learn from a
refusal what to say next.
Rules never broken: with certificates configured both sides show one of the cluster's authority, or the connection never
comes to a call. A certificate is a node's by a name that no client's has (`holdfast://CLUSTER/node/ID`), and it is that
node's only: it must agree with what the caller says of itself, and with the node that was dialled. A caller that does
not agree is told one sentence, the same for everybody, with a reference to this node's log (`refusal_log`). New
connections get what lies in the files.
A configuration is given to gRPC only when the files have changed: it puts a new one in the place of one that a thread
beside it may be about to use for another connection, and then crashes the process (1.85: 8 clients that connect in a
loop, within seconds).
Rejected: a shared secret. It cannot say which node speaks, and it is on all hosts when it leaks from one.
"""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from cluster.rpc import options
from cluster.watched_files import WatchedFiles

log = logging.getLogger("holdfast.rpc")

NOT_A_NODE = "refused"
"""The text that a stranger gets, besides a reference to the log."""

SCHEME = "holdfast://"


def node_uri(cluster: str, node: int) -> str:
    """The name in a node's certificate by which others know it when it calls."""
    return f"{SCHEME}{cluster}/node/{node}"


def node_host(cluster: str, node: int) -> str:
    """The name in a node's certificate by which others know it when they call; no name of any network."""
    return f"node-{node}.{cluster}.holdfast"


class CertificateFault(ValueError):
    """The files cannot be used; the message names them."""


@dataclass(frozen=True)
class Pems:
    ca: bytes
    cert: bytes
    key: bytes
    listener: ssl.SSLContext
    """Contexts of the same files, for streams."""
    dialler: ssl.SSLContext


def uris_of(transport: Any) -> list[bytes]:
    """The URIs in the certificate that the other end of a stream has shown."""
    names = (transport.get_extra_info("peercert") or {}).get("subjectAltName", ())
    return [name.encode() for kind, name in names if kind == "URI"]


class PeerTls:
    """TLS of one node towards its peers. Raises CertificateFault when it is made with files that cannot be read."""

    def __init__(self, cluster: str, ca_file: str, cert_file: str, key_file: str) -> None:
        self._cluster = cluster
        self._paths = (Path(ca_file), Path(cert_file), Path(key_file))
        self._files = WatchedFiles(self._paths)  # looked at before they are read
        self._pems = self._read()

    @property
    def version(self) -> object:
        """Changes when there are new files."""
        self._renew()
        return self._pems

    def server_credentials(self) -> Any:
        self._renew()
        served, lock = self._pems, threading.Lock()

        def renewed() -> Any:
            """New configuration, or None; gRPC asks for each connection, in threads of its own."""
            nonlocal served
            with lock:
                self._renew()
                if self._pems is served:
                    return None  # see above: there would be one more to crash over for each connection
                served = self._pems
                return _configuration(served)

        return grpc.dynamic_ssl_server_credentials(_configuration(served), renewed, require_client_authentication=True)

    def channel(self, node: int, address: str) -> Any:
        """A channel to the node, which connects when it is used, and to no other."""
        self._renew()
        pems = self._pems
        credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.cert)
        name = ("grpc.ssl_target_name_override", node_host(self._cluster, node))
        return grpc.aio.secure_channel(address, credentials, options=[*options.channel_options(), name])

    def listener_context(self) -> ssl.SSLContext:
        """Context for a stream that a peer has dialled."""
        self._renew()
        return self._pems.listener

    def dialler_context(self) -> ssl.SSLContext:
        """Context for a stream to the node of `host_of`."""
        self._renew()
        return self._pems.dialler

    def host_of(self, node: int) -> str:
        return node_host(self._cluster, node)

    def is_node(self, context: Any, node: int) -> bool:
        """True if the certificate that a call came with is that node's."""
        names = context.auth_context().get("peer_uri", ())
        return node_uri(self._cluster, node).encode() in names

    def shown(self, context: Any) -> str:
        """The names by which the certificate of a call could be a node's, for the log."""
        names = [name.decode(errors="replace") for name in context.auth_context().get("peer_uri", ())]
        return ", ".join(names) or "no node"

    def _renew(self) -> None:
        if not self._files.have_changed():
            return
        try:
            self._pems = self._read()
        except CertificateFault as fault:
            log.error("the new certificates between nodes are not used, the old ones are: %s", fault)

    def _read(self) -> Pems:
        ca, cert, key = self._paths
        try:
            # OpenSSL looks whether they are what they should be; gRPC would only fail each handshake.
            contexts = [ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
            for context in contexts:
                context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python has no minimum of its own
                context.verify_mode = ssl.CERT_REQUIRED
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: the authority may have one above it
                context.hostname_checks_common_name = False
                context.options |= ssl.OP_NO_RENEGOTIATION
                context.load_verify_locations(ca)
                context.load_cert_chain(cert, key, password=lambda: "")
            contexts[0].num_tickets = 0  # a stream is not resumed
            return Pems(ca.read_bytes(), cert.read_bytes(), key.read_bytes(), *contexts)
        except (OSError, ssl.SSLError) as error:
            raise CertificateFault(f"{ca}, {cert}, {key}: {error}") from error


def _configuration(pems: Pems) -> Any:
    return grpc.ssl_server_certificate_configuration([(pems.key, pems.cert)], pems.ca)
