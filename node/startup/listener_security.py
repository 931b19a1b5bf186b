"""Access to a node, from its configuration: the parts that its listeners share, and a gate for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cluster.metadata import MetadataView
from cluster.rpc import CertificateFault, PeerTls
from node.config import ClusterSection, ConfigError, ListenerSection, SecuritySection, TokenSection
from node.security.audit import AuditLog
from node.security.authentication import Gate, LoginThreads, lets_anonymous_in
from node.security.authorisation import Policy
from node.security.secret_box import SecretBox, read_keys
from node.security.shared_access import SharedAccessKeys
from node.security.tls import Certificate, CertificateError, ServerTls, TlsFiles
from node.security.tokens import TokenRules, TokenVerifier
from node.startup.first_user import first_user_of


class Gates:
    def __init__(self, section: SecuritySection, view: MetadataView) -> None:
        self._section = section
        self.first_user = first_user_of(section.first_user_file)
        never_open = section.anonymous == "never" or self.first_user is not None
        self._policy = Policy(view, section.administrators, never_open=never_open)
        self._audit = AuditLog(section.audit_file, section.audit_bytes)
        self._threads = LoginThreads()
        self.box = box_of(section.secrets_file)
        self._tokens = None if section.token is None else TokenVerifier(token_rules(section.token))

    @property
    def names_administrators(self) -> bool:
        return bool(self._section.administrators)

    def gate(self, listener: ListenerSection, tls: ServerTls | None) -> Gate:
        return Gate(
            self._policy,
            bind_host=listener.bind_address.host,
            anonymous=self._section.anonymous,
            plain_without_tls=self._section.plain_without_tls,
            tls=tls,
            tokens=self._tokens,
            box=self.box,
            audit=self._audit,
            threads=self._threads,
        )

    def for_checkpoints(self, bind_host: str) -> tuple[SharedAccessKeys, Callable[[], bool]]:
        """The keys that open the checkpoint store, and whether it needs none now."""
        anonymous = lets_anonymous_in(self._section.anonymous, bind_host)
        return SharedAccessKeys(self._policy.access, self.box), lambda: anonymous and self._policy.is_open

    def close(self) -> None:
        self._threads.close()
        self._audit.close()


def box_of(file: str) -> SecretBox | None:
    """The box for secrets of the cluster; None: it has no key. Raises ConfigError."""
    if not file:
        return None
    try:
        return SecretBox(read_keys(Path(file)))
    except (OSError, ValueError) as error:
        raise ConfigError(f"security.secrets_file: {file}: {error}") from error


def peer_tls_of(section: ClusterSection) -> PeerTls | None:
    """TLS between nodes; None: it is not configured. Raises ConfigError."""
    if not section.ca_file:
        return None
    try:
        return PeerTls(section.name, section.ca_file, section.cert_file, section.key_file)
    except CertificateFault as fault:
        raise ConfigError(f"cluster.ca_file, cert_file, key_file: {fault}") from fault


def token_rules(section: TokenSection) -> TokenRules:
    return TokenRules(**{name: getattr(section, name) for name in section.__struct_fields__})


def tls_of(section: ListenerSection) -> ServerTls | None:
    """TLS of a listener; None: it is off. Raises ConfigError."""
    if section.tls == "off":
        return None
    own = Certificate(section.cert_file, section.key_file)
    others = {name: Certificate(one.cert_file, one.key_file) for name, one in section.server_names.items()}
    required = section.client_certificate == "required"
    try:
        return ServerTls(TlsFiles(own, others, section.client_ca_file, required))
    except CertificateError as error:
        raise ConfigError(f"listener.{section.name}: {error}") from error
