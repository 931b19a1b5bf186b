#!/usr/bin/python
"""Certificate authority of a cluster's nodes, with a certificate for each node; runs on the control host.

The authority's key never leaves the control host. A second call changes nothing, unless a certificate expires soon, is
not from this authority, or belongs to another node. An authority that expires soon gets a new certificate for the same
key. So nodes with either authority certificate accept both old and new node certificates.
"""

from __future__ import annotations

import datetime
import os

from ansible.module_utils.basic import AnsibleModule

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:  # Ansible's vault needs it, but Debian's Ansible may use another Python here
    x509 = None

DOCUMENTATION = r"""
---
module: holdfast_certificates
short_description: Have certificates by which nodes of a cluster know each other
description:
  - Makes an authority and a certificate for each node in a directory of the host where it runs, and renews what is
    about to end. Check mode works.
options:
  directory:
    description: Where C(ca.pem), C(ca.key), C(node-ID.pem) and C(node-ID.key) are; made with mode 0700.
    type: path
    required: true
  cluster:
    description: The cluster's name, which each certificate carries.
    type: str
    required: true
  nodes:
    description: The nodes' numbers.
    type: list
    elements: int
    required: true
  days:
    description: How long a node's certificate holds.
    type: int
    default: 365
  renew_days:
    description: With fewer days left than this, it is renewed.
    type: int
    default: 90
author: Holdfast
"""

EXAMPLES = r"""
- name: Have certificates
  holdfast_certificates:
    directory: certificates
    cluster: production
    nodes: [1, 2, 3]
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
written:
  description: The certificates that were made or renewed.
  type: list
  elements: str
  returned: always
"""

AUTHORITY_DAYS = 3650
CLOCKS_DIFFER = datetime.timedelta(days=1)
"""Certificates are valid from this long ago on, so that a host whose clock is slow accepts a new one."""


class CertificateAuthority:
    def __init__(self, module):
        self._module = module
        self._directory = module.params["directory"]
        self._cluster = module.params["cluster"]
        self._now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - the Python of Ansible may be old
        self.written = []
        self.key = self.certificate = None

    def have(self):
        key, cert = self._path("ca.key"), self._path("ca.pem")
        if os.path.exists(cert) and not os.path.exists(key):
            self._module.fail_json(
                msg=f"{key} is missing, and {cert} is there: bring the key back; or, if it is lost, stop all nodes, "
                f"delete {self._directory} and run this again"
            )
        if os.path.exists(key):
            self.key = serialization.load_pem_private_key(_read(key), password=None)
            if os.path.exists(cert):
                self.certificate = x509.load_pem_x509_certificate(_read(cert))
        else:
            self.key = ec.generate_private_key(ec.SECP256R1())
        if self.certificate is None or self._ends(self.certificate, self._module.params["days"]):
            name = _named(f"nodes of {self._cluster}")
            self.certificate = (
                self._builder(name, name, self.key.public_key(), AUTHORITY_DAYS)
                .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
                .add_extension(_usage(signs=True), critical=True)
                .sign(self.key, hashes.SHA256())
            )
            self._write("ca", self.key, self.certificate)

    def issue(self, node):
        names = [
            x509.UniformResourceIdentifier(f"holdfast://{self._cluster}/node/{node}"),
            x509.DNSName(f"node-{node}.{self._cluster}.holdfast"),
        ]
        if self._serves(node, names):
            return
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(f"node {node} of {self._cluster}")
        certificate = (
            self._builder(subject, self.certificate.subject, key.public_key(), self._module.params["days"])
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        self._write(f"node-{node}", key, certificate)

    def _serves(self, node, names):
        """Tell whether the node's certificate is from this authority, fits its key and names, and does not end soon."""
        cert, key = self._path(f"node-{node}.pem"), self._path(f"node-{node}.key")
        if not (os.path.exists(cert) and os.path.exists(key)):
            return False
        certificate = x509.load_pem_x509_certificate(_read(cert))
        private = serialization.load_pem_private_key(_read(key), password=None)
        carried = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (InvalidSignature, ValueError):
            return False
        return (
            list(carried) == names
            and certificate.public_key() == private.public_key()
            and not self._ends(certificate, self._module.params["renew_days"])
        )

    def _ends(self, certificate, days):
        return certificate.not_valid_after_utc - self._now < datetime.timedelta(days=days)

    def _builder(self, subject, issuer, key, days):
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - CLOCKS_DIFFER)
            .not_valid_after(self._now + datetime.timedelta(days=days))
        )

    def _path(self, name):
        return os.path.join(self._directory, name)

    def _write(self, name, key, certificate):
        """Write the key first: if the call is interrupted between the two, the next one finds that they do not fit."""
        self.written.append(self._path(f"{name}.pem"))
        if self._module.check_mode:
            return
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._replace(f"{name}.key", pem)
        self._replace(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def _replace(self, name, data):
        temporary = self._path(name + ".new")
        if os.path.lexists(temporary):
            os.unlink(temporary)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path(name))


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _named(name):
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name[:64])])


def _usage(signs):
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    none = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=signs, crl_sign=signs, **none)


def main():
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "cluster": {"type": "str", "required": True},
            "nodes": {"type": "list", "elements": "int", "required": True},
            "days": {"type": "int", "default": 365},
            "renew_days": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    if x509 is None:
        module.fail_json(msg="the Python that runs Ansible has no cryptography: install it there")
    if not 0 <= module.params["renew_days"] < module.params["days"] <= AUTHORITY_DAYS // 2:
        module.fail_json(
            msg=f"renew_days must be less than days, and days at most {AUTHORITY_DAYS // 2}; "
            f"they are {module.params['renew_days']} and {module.params['days']}"
        )
    authority = CertificateAuthority(module)
    authority.have()
    for node in module.params["nodes"]:
        authority.issue(node)
    module.exit_json(changed=bool(authority.written), written=authority.written)


if __name__ == "__main__":
    main()
