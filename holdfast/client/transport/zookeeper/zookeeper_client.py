"""The client's way to ZooKeeper: its address, our login there, and what its failures mean to a program.

Problem: kazoo has its own errors and its own log, and most programs need neither it nor ZooKeeper.
Rules never broken: kazoo is imported only when ZooKeeper is asked for; where it is missing the error says what
to install; its errors leave here as a `HoldfastError` that names the servers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast.client.errors import ConfigurationError, HoldfastError, UnreachableError

SCHEME = "zk://"

RECONNECT_MOST_S = 2.0
"""Longest pause between kazoo's attempts to connect: a waiting client goes on soon after ZooKeeper is back."""

# kazoo's lines about each attempt are for those that look for them; a program hears by our errors and our own log.
KAZOO_LOG = logging.getLogger("holdfast.client.kazoo")
KAZOO_LOG.addHandler(logging.NullHandler())
KAZOO_LOG.propagate = False


@dataclass(frozen=True)
class ZooKeeperLogin:
    """Login at a ZooKeeper that asks for one."""

    auth: str = ""  # user:password
    ca_file: str = ""  # given: TLS
    cert_file: str = ""
    key_file: str = ""
    verify_hostname: bool = True


@dataclass(frozen=True)
class ZooKeeperAddress:
    """Parts of a `zk://` URL."""

    hosts: str
    path: str
    options: dict[str, str]


def parse_url(url: str, *, known_options: set[str], what: str, form: str) -> ZooKeeperAddress:
    """Parse `zk://host:port,host:port/PATH?option=value`; `what` it names, `form` as the advice."""
    if not isinstance(url, str):
        raise ConfigurationError(f"{url!r} names {what}", advice=form)
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query)
    except ValueError as error:
        raise ConfigurationError(f"{url!r} names {what}: {error}", advice=form) from None
    path = parts.path.rstrip("/")
    names = path.split("/")[1:]
    sound = bool(names) and all(name not in ("", ".", "..") for name in names)
    if not url.startswith(SCHEME) or not parts.netloc or not sound or set(options) - known_options:
        raise ConfigurationError(f"{url!r} names {what}", advice=form)
    return ZooKeeperAddress(parts.netloc, path, {name: values[-1] for name, values in options.items()})


def make_client(hosts: str, login: ZooKeeperLogin, timeout_s: float) -> Any:
    """A kazoo client, not started. Only clients with the same login may touch what it creates."""
    try:
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry
        from kazoo.security import make_digest_acl
    except ImportError as error:
        raise ConfigurationError(
            f"ZooKeeper cannot be reached without the package kazoo ({error})",
            advice="pip install 'holdfast[zookeeper]'",
        ) from None
    acl = None
    if login.auth:
        user, separator, password = login.auth.partition(":")
        if not user or not separator:
            raise ConfigurationError("ZooKeeperLogin.auth is user:password", advice="write both, with a colon between")
        acl = [make_digest_acl(user, password, all=True)]
    return KazooClient(
        hosts,
        timeout=timeout_s,
        auth_data=[("digest", login.auth)] if login.auth else None,
        default_acl=acl,
        use_ssl=bool(login.ca_file),
        ca=login.ca_file or None,
        certfile=login.cert_file or None,
        keyfile=login.key_file or None,
        check_hostname=bool(login.ca_file) and login.verify_hostname,
        connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=RECONNECT_MOST_S, ignore_expire=True),
        logger=KAZOO_LOG,
    )


def end_client(client: Any) -> None:
    """End a kazoo client. Blocking; its session ends with it where a server hears of it."""
    client.stop()
    client.close()


def explain(error: BaseException, hosts: str, path: str) -> HoldfastError:
    """Error for a program, of what kazoo raised."""
    from kazoo.exceptions import AuthFailedError, NoAuthError

    if isinstance(error, NoAuthError | AuthFailedError):
        return ConfigurationError(
            f"ZooKeeper at {hosts} does not let this client use {path}",
            advice="give ZooKeeperLogin(auth='user:password') with the login that made what is there, or another path",
        )
    return UnreachableError(
        f"ZooKeeper at {hosts} does not answer: {str(error) or type(error).__name__}",
        advice="check the address and that a majority of its servers is up; then try again",
    )
