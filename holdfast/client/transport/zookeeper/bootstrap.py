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
import time
from collections.abc import Callable
from typing import Any

from holdfast.client.errors import ConfigurationError, UnreachableError
from holdfast.client.transport.zookeeper.zookeeper_client import (
    SCHEME,
    ZooKeeperAddress,
    ZooKeeperLogin,
    end_client,
    make_client,
    parse_url,
)

__all__ = ["SCHEME", "ZooKeeperLogin", "find_servers"]

FORM = "write zk://host:port,host:port/ROOT/CLUSTER, optionally with ?listener=NAME"
KNOWN_OPTIONS = {"listener"}


async def find_servers(url: str, *, timeout_s: float = 10.0, login: ZooKeeperLogin | None = None) -> list[str]:
    """The AMQP addresses of the nodes that are registered now, in no order that means anything.

    Raises ConfigurationError (the URL, or no such cluster) or UnreachableError (worth another try).
    """
    place = parse_url(url, known_options=KNOWN_OPTIONS, what="no cluster in ZooKeeper", form=FORM)
    if timeout_s <= 0:
        raise ConfigurationError(f"timeout_s must be more than 0, not {timeout_s}")
    return await asyncio.to_thread(_find, place, timeout_s, login or ZooKeeperLogin())


def _find(place: ZooKeeperAddress, timeout_s: float, login: ZooKeeperLogin) -> list[str]:
    client = make_client(place.hosts, login, timeout_s)
    # Imported here: most clients never need it, and it takes a quarter of the time in which they start.
    from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    deadline_s = time.monotonic() + timeout_s

    def left_s() -> float:
        return max(0.0, deadline_s - time.monotonic())

    try:
        client.start(timeout=timeout_s)
        return _addresses(client, place, left_s)
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
        end_client(client)


def _addresses(client: Any, place: ZooKeeperAddress, left_s: Callable[[], float]) -> list[str]:
    from kazoo.exceptions import NoNodeError

    found: list[str] = []
    wanted = place.options.get("listener", "default")
    others: set[str] = set()
    for name in client.get_children_async(f"{place.path}/nodes").get(timeout=left_s()):
        try:
            data, _ = client.get_async(f"{place.path}/nodes/{name}").get(timeout=left_s())
            listeners = json.loads(data)["listeners"]
        except NoNodeError:
            continue  # it has just gone
        except (ValueError, KeyError, TypeError):
            continue  # not written by a node
        others |= set(listeners)
        if wanted in listeners:
            found.append(str(listeners[wanted]))
    return _at_least_one(found, others, place, wanted)


def _at_least_one(found: list[str], others: set[str], place: ZooKeeperAddress, wanted: str) -> list[str]:
    if found:
        return found
    if others:
        known = ", ".join(sorted(others))
        raise ConfigurationError(f"no node of {place.path} has a listener {wanted!r}", advice=f"use {known}")
    raise UnreachableError(
        f"no node of {place.path} is registered in ZooKeeper now",
        advice="start the cluster's nodes, or see in their logs why they do not register; then try again",
    )
