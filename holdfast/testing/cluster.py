"""A cluster of real node processes, in a directory and on ports of its own.

Rules never broken: when `with` is entered, every node serves clients and the cluster has a leader; when it is left, no
node runs any more. A node is signalled only as the process that was started for it. A test process that is itself
killed takes its nodes with it.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from holdfast.cli.local_cluster.lifecycle import MAX_NODES, create, start
from holdfast.cli.local_cluster.processes import LocalCluster
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.output import Output
from holdfast.client.sync import AdminClient
from holdfast.client.transport.security.credentials import Security


class ClusterError(Exception):
    """A cluster or one of its nodes did not do what the test asked for. The text says why, and what to do."""


class Cluster:
    """A cluster for tests: started by `with`, or by `start` and `stop`.

    Args:
        nodes: how many node processes, 1 to 7. One is enough to test a program; three survive `kill_node`.
        directory: where data and logs of nodes are kept; it must hold no cluster, and it stays. None: a temporary one,
            removed with the cluster.
        durability: "fsync" acknowledges what a majority has on disk, "replicated" what it has in its page caches.
        wait_s: seconds that a start may take until every node serves.

    Raises:
        ValueError: an argument that can never work.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        directory: Path | str | None = None,
        durability: Literal["fsync", "replicated"] = "fsync",
        wait_s: float = 60.0,
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"a cluster has 1 to {MAX_NODES} nodes, not {nodes}")
        if durability not in ("fsync", "replicated"):
            raise ValueError(f"durability is 'fsync' or 'replicated', not {durability!r}")
        if wait_s <= 0:
            raise ValueError(f"wait_s is a positive number of seconds, not {wait_s!r}")
        self._nodes, self._durability, self._wait_s = nodes, durability, wait_s
        self._directory = None if directory is None else Path(directory)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._local: LocalCluster | None = None
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Start all nodes; returns when they serve and have a leader. Raises ClusterError with the end of a node's log
        if one of them does not start."""
        if self._local is not None:
            raise ClusterError("the cluster has been started: stop it first, or make another Cluster")
        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="holdfast-test-")
            directory = Path(self._temporary.name)
        else:
            directory = self._directory
        try:
            if LocalCluster.exists(directory):
                raise ClusterError(f"{directory} holds a cluster already: name another directory")
            with _plain_errors():
                self._local = create(
                    directory, self._nodes, None, 0, "test", self._durability, usual_ports=False, tied=True
                )
                start(self._local, Output(as_json=True, progress=False), self._wait_s, Security())
        except BaseException:
            self.stop()  # what has started until then, after Ctrl-C, too
            raise

    def stop(self) -> None:
        """Stop every node, and remove the temporary directory. Does nothing if the cluster does not run."""
        admin, self._admin = self._admin, None
        local, self._local = self._local, None
        temporary, self._temporary = self._temporary, None
        try:
            if admin is not None:
                admin.close()
        finally:
            try:
                if local is not None:
                    with _plain_errors():
                        local.stop()
            finally:
                if temporary is not None:
                    temporary.cleanup()

    def kill_node(self, node: int) -> None:
        """End a node by `kill -9`, as a crash would. Nodes are numbered from 1. Its data stay for `start_node`."""
        with _plain_errors():
            self._running.plan.node(node)
            if not self._running.kill(node):
                raise ClusterError(f"node {node} does not run: start it with start_node({node})")

    def start_node(self, node: int) -> None:
        """Start a node that was killed; returns when it serves."""
        with _plain_errors():
            self._running.plan.node(node)
            self._running.spawn(node).wait(time.monotonic() + self._wait_s)

    # ---------------------------------------------------------------- what a program is given

    @property
    def address(self) -> str:
        """Address of node 1, `host:port`, for clients. Any node serves any client."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """Addresses of all nodes, in the order of their numbers."""
        return self._running.plan.servers

    @property
    def directory(self) -> Path:
        """Directory with the files of the nodes."""
        return self._running.directory

    @property
    def admin(self) -> AdminClient:
        """Client for all other administrative requests; it is closed with the cluster."""
        if self._admin is None:
            self._admin = AdminClient(self.addresses)
        return self._admin

    def create_log(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        compression: str | None = None,
    ) -> str:
        """Create a log, and return its name. None: a name that no other log has. `replicas` None: three, or as many as
        there are nodes."""
        name = f"log-{uuid.uuid4().hex[:12]}" if name is None else name
        self.admin.create_log(
            name,
            partitions=partitions,
            replicas=replicas,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            compression=compression,
        )
        return name

    def delete_log(self, name: str) -> None:
        """Delete a log with all its events."""
        self.admin.delete_log(name)

    def node_log(self, node: int) -> str:
        """The end of what a node has written to its log, up to 64 KiB."""
        with _plain_errors():
            self._running.plan.node(node)
        return "\n".join(self._running.logged(node, 0))

    @property
    def _running(self) -> LocalCluster:
        if self._local is None:
            raise ClusterError("the cluster does not run: use it inside `with Cluster() as cluster:`")
        return self._local


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Say what a command would have said, with its advice."""
    try:
        yield
    except CliError as error:
        raise ClusterError(f"{error}\nwhat to do: {error.advice}" if error.advice else str(error)) from None
