"""The small certificate authority of a local cluster: it vouches for its nodes to each other, and for nobody else.

Rule never broken: a certificate carries the names by which nodes know each other (`cluster/rpc/peer_tls.py`), of one
node of one cluster; keys are readable by their owner's group at most.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = datetime.timedelta(days=3650)
"""A local cluster lives no longer. Those of hosts are renewed by what made them."""

CLOCKS_DIFFER = datetime.timedelta(days=1)
FILE_MODE = 0o640


class NodeAuthority:
    """Authority of a new cluster, kept only as a certificate: a node that is added later needs a new authority."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"nodes of {cluster}")
        usage = _usage(signs=True)
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def write(self, path: Path) -> None:
        """Write the authority's certificate, which nodes trust."""
        write_private(path, self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, node: int, cert: Path, key: Path) -> None:
        own = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.UniformResourceIdentifier(f"holdfast://{self._cluster}/node/{node}"),
            x509.DNSName(f"node-{node}.{self._cluster}.holdfast"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        certificate = (
            _builder(_named(f"node {node} of {self._cluster}"), self._name, own.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private(key, private)
        write_private(cert, certificate.public_bytes(serialization.Encoding.PEM))


def write_private(path: Path, data: bytes) -> None:
    """A whole file, renamed into place, that others than its owner's group cannot read at any moment."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
