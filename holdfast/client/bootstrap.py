"""Finding a cluster's nodes in ZooKeeper, for a client that is given no address of a node.

Problem: addresses of nodes change, and a program's settings do not follow.
Rule never broken: ZooKeeper is asked once, at the beginning; a client that runs does not need it. What is found are
only places to begin with; leaders are found by asking the nodes.
Rejected: a watch that keeps the list fresh; a client learns addresses from redirects as it goes.

    servers = await find_servers("zk://10.0.0.1:2181,10.0.0.2:2181/holdfast/prod")
    async with AdminClient(servers) as admin: ...

The last part of the path is the cluster's name; `?listener=outside` takes the addresses of that listener.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast.client.errors import ConfigurationError, UnreachableError

SCHEME = "zk://"
FORM = "write zk://host:port,host:port/ROOT/CLUSTER, optionally with ?listener=NAME"
KNOWN_OPTIONS = {"listener"}


@dataclass(frozen=True)
class ZooKeeperLogin:
    """How to reach a ZooKeeper that asks who is there."""

    auth: str = ""  # user:password
    ca_file: str = ""  # given: TLS
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True)
class _Place:
    hosts: str
    path: str
    listener: str


async def find_servers(url: str, *, timeout_s: float = 10.0, login: ZooKeeperLogin | None = None) -> list[str]:
    """The AMQP addresses of the nodes that are registered now, in no order that means anything.

    Raises ConfigurationError (the URL, or no such cluster) or UnreachableError (worth another try).
    """
    place = _parse(url)
    return await asyncio.to_thread(_find, place, timeout_s, login or ZooKeeperLogin())


def _parse(url: str) -> _Place:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    options = parse_qs(parts.query)
    if not url.startswith(SCHEME) or not parts.netloc or path.count("/") < 1 or set(options) - KNOWN_OPTIONS:
        raise ConfigurationError(f"{url!r} names no cluster in ZooKeeper", advice=FORM)
    return _Place(parts.netloc, path, options.get("listener", ["default"])[0])


def _find(place: _Place, timeout_s: float, login: ZooKeeperLogin) -> list[str]:
    # Imported here: most clients never need it, and it takes a quarter of the time in which they start.
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(
        place.hosts,
        timeout=timeout_s,
        auth_data=[("digest", login.auth)] if login.auth else None,
        use_ssl=bool(login.ca_file),
        ca=login.ca_file or None,
        certfile=login.cert_file or None,
        keyfile=login.key_file or None,
        check_hostname=bool(login.ca_file),
    )
    try:
        client.start(timeout=timeout_s)
        return _addresses(client, place, timeout_s)
    except NoNodeError:
        raise ConfigurationError(
            f"ZooKeeper at {place.hosts} knows no cluster {place.path}", advice="correct the path; " + FORM
        ) from None
    except NoAuthError:
        raise ConfigurationError(
            f"ZooKeeper at {place.hosts} lets nobody read {place.path} without credentials",
            advice="give ZooKeeperLogin(auth='user:password'), or let the nodes set clients_may_read",
        ) from None
    except (KazooTimeoutError, KazooException, OSError) as error:
        why = str(error) or type(error).__name__
        raise UnreachableError(
            f"ZooKeeper at {place.hosts} does not answer: {why}",
            advice="check the address and that a majority of its servers is up; or give --server host:port of a node",
        ) from error
    finally:
        client.stop()
        client.close()


def _addresses(client: Any, place: _Place, timeout_s: float) -> list[str]:
    from kazoo.exceptions import NoNodeError

    found: list[str] = []
    others: set[str] = set()
    for name in client.get_children_async(f"{place.path}/nodes").get(timeout=timeout_s):
        try:
            data, _ = client.get_async(f"{place.path}/nodes/{name}").get(timeout=timeout_s)
            listeners = json.loads(data)["listeners"]
        except NoNodeError:
            continue  # it has just gone
        except (ValueError, KeyError, TypeError):
            continue  # not written by a node
        others |= set(listeners)
        if place.listener in listeners:
            found.append(str(listeners[place.listener]))
    return _at_least_one(found, others, place)


def _at_least_one(found: list[str], others: set[str], place: _Place) -> list[str]:
    if found:
        return found
    if others:
        known = ", ".join(sorted(others))
        raise ConfigurationError(f"no node of {place.path} has a listener {place.listener!r}", advice=f"use {known}")
    raise UnreachableError(
        f"no node of {place.path} is registered in ZooKeeper now",
        advice="start the cluster's nodes, or see in their logs why they do not register; then try again",
    )
