"""A stock client in a network of its own: produces to and consumes from every partition through one node.

    outside.py SERVER LOG PARTITIONS EARLIER

`EARLIER` events are in each partition already. Prints the addresses that redirects named, as JSON; each was followed.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

from proton import Message, symbol
from proton.utils import BlockingConnection, LinkDetached

from tests.integration.workloads.plain import (
    EARLIEST,
    REDIRECT,
    STREAMS,
    WAIT_S,
    Bound,
    starting,
)

EVENTS = 5


def attached(server: str, named: set[str], attach: Callable[[BlockingConnection], Any]) -> tuple[Any, Any]:
    """The connection and the link, at the server or where it redirects to."""
    connection = BlockingConnection(f"amqp://{server}", timeout=WAIT_S, desired_capabilities=[symbol(STREAMS)])
    try:
        return connection, attach(connection)
    except LinkDetached as detached:
        if detached.condition != REDIRECT:
            raise
        info = {str(key): value for key, value in detached.link.remote_condition.info.items()}
        connection.close()  # only now: it forgets the condition
        address = f"{info['network-host']}:{int(info['port'])}"
        named.add(address)
        return attached(address, named, attach)


def exchange(server: str, log: str, partition: str, earlier: int, named: set[str]) -> None:
    bodies = [str(uuid.uuid4()) for _ in range(EVENTS)]
    bound = Bound(partition)
    connection, sender = attached(server, named, lambda at: at.create_sender(log, options=[bound]))
    for body in bodies:
        sender.send(Message(body=body))
    connection.close()
    options = [bound, starting(**EARLIEST)]
    connection, receiver = attached(server, named, lambda at: at.create_receiver(log, credit=1000, options=options))
    found = [receiver.receive(timeout=WAIT_S).body for _ in range(earlier + EVENTS)]
    connection.close()
    assert found[earlier:] == bodies, f"partition {partition}: {found} does not end with {bodies}"


def main() -> None:
    server, log, partitions, earlier = sys.argv[1:]
    named: set[str] = set()
    for partition in range(int(partitions)):
        exchange(server, log, str(partition), int(earlier), named)
    print(json.dumps(sorted(named)))


if __name__ == "__main__":
    main()
