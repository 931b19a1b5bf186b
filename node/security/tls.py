"""The certificates of a listener, and the TLS contexts made from them.

Problem: certificates end and are renewed while clients are connected, and a restart for that is easily forgotten.
Rules never broken: a new connection gets the certificates of the files, at most LOOK_EVERY_S old; a file that is half
written, or does not fit its key, changes nothing but a line in the log, and the earlier certificate stays in use. TLS
1.2 at least, no renegotiation.
Rejected: loading new files into the living context. Authorities that were trusted once would stay trusted.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from cluster.watched_files import WatchedFiles

log = logging.getLogger("holdfast.security")

ALPN = ["amqp"]
LOOK_EVERY_S = 1.0


class CertificateError(ValueError):
    """Raised when files cannot be used; the message names them and what to do."""


@dataclass(frozen=True)
class Certificate:
    cert_file: str
    key_file: str


@dataclass(frozen=True)
class TlsFiles:
    """Files of one listener: its certificates, and the authority for those of clients."""

    own: Certificate
    by_name: Mapping[str, Certificate] = field(default_factory=dict)  # for clients that ask for that server name
    client_ca_file: str = ""  # empty: clients are not asked for certificates
    client_certificate_required: bool = False

    @property
    def paths(self) -> list[Path]:
        each = [self.own, *self.by_name.values()]
        names = [name for one in each for name in (one.cert_file, one.key_file)]
        return [Path(name) for name in (*names, self.client_ca_file) if name]


class ServerTls:
    """TLS of a listener; `context` is for new connections. Raises CertificateError when it is made with bad files."""

    def __init__(self, files: TlsFiles, now_s: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._now_s = now_s
        self._certificates: WeakKeyDictionary[ssl.SSLContext, bytes] = WeakKeyDictionary()
        self._watched = WatchedFiles(files.paths)  # looked at before they are read
        self._looked_s = now_s()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        now_s = self._now_s()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._renew()
        return self._context

    @property
    def asks_for_certificates(self) -> bool:
        return bool(self._files.client_ca_file)

    def certificate(self, context: ssl.SSLContext | None) -> bytes | None:
        """Certificate that a connection of that context was shown, in DER."""
        return None if context is None else self._certificates.get(context)

    def _renew(self) -> None:
        if not self._watched.have_changed():
            return
        try:
            self._context = self._load()
        except CertificateError as error:
            log.error("the new certificates are not used, the old ones are: %s", error)
        else:
            log.info("new certificates are in use: %s", self._files.own.cert_file)

    def _load(self) -> ssl.SSLContext:
        others = {name: self._one(certificate) for name, certificate in self._files.by_name.items()}
        context = self._one(self._files.own)
        if self._files.client_ca_file:
            try:
                context.load_verify_locations(cafile=self._files.client_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise CertificateError(
                    f"{self._files.client_ca_file} cannot be used: {error}; it must hold certificates in PEM"
                ) from error
            required = self._files.client_certificate_required
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if others:

            def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
                if name in others:
                    connection.context = others[name]

            context.sni_callback = choose
        return context

    def _one(self, certificate: Certificate) -> ssl.SSLContext:
        context = new_context(ssl.PROTOCOL_TLS_SERVER)
        load_chain(context, certificate)
        self._certificates[context] = _first_in(certificate.cert_file)
        return context


def new_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(ALPN)
    return context


def load_chain(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load a certificate and its key. Raises CertificateError."""
    try:
        context.load_cert_chain(certificate.cert_file, certificate.key_file, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(
            f"{certificate.cert_file} and {certificate.key_file} cannot be used: {error}; they must be a certificate "
            "chain and its key, in PEM"
        ) from error


def _no_password() -> str:
    raise CertificateError("a key is encrypted: a node that starts by itself needs one that is not")


def _first_in(path: str) -> bytes:
    """The certificate itself, without those of its issuers, in DER."""
    end = "-----END CERTIFICATE-----"
    try:
        text = Path(path).read_text(encoding="ascii")
        return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)])
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path} cannot be read as a certificate in PEM: {error}") from error
