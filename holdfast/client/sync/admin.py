"""The synchronous administration."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from holdfast.client import admin
from holdfast.client.sync.twin import Twin
from holdfast.client.transport.log_info import PartitionInfo
from holdfast.client.transport.network import NetworkOptions


class AdminClient(Twin[admin.AdminClient]):
    """See `holdfast.client.AdminClient`."""

    def __init__(
        self, servers: str | Sequence[str], *, timeout_s: float = 30.0, options: NetworkOptions | None = None
    ) -> None:
        super().__init__(lambda: admin.AdminClient(servers, timeout_s=timeout_s, options=options), "administration")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close(lambda client: client.close())

    def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        compression: str | None = None,
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "partitions": partitions,
            "replicas": replicas,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "compression": compression,
        }
        return self._run(lambda client: client.create_log(name, **arguments))

    def list_logs(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_logs())

    def describe_log(self, name: str) -> dict[str, Any]:
        return self._run(lambda client: client.describe_log(name))

    def alter_log(self, name: str, **changes: int | str | None) -> dict[str, Any]:
        return self._run(lambda client: client.alter_log(name, **changes))

    def delete_log(self, name: str) -> None:
        self._run(lambda client: client.delete_log(name))

    def dump_log(
        self, name: str, partition: str = "0", *, after: int = 0, offset: str | None = None, limit: int = 100
    ) -> dict[str, Any]:
        return self._run(lambda client: client.dump_log(name, partition, after=after, offset=offset, limit=limit))

    def list_producers(self, log: str, *, partition: str | None = None) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_producers(log, partition=partition))

    def describe_producer(self, log: str, partition: str, producer_group_id: int) -> dict[str, Any]:
        return self._run(lambda client: client.describe_producer(log, partition, producer_group_id))

    def list_groups(self, log: str) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_groups(log))

    def describe_group(self, log: str, group: str) -> dict[str, Any]:
        return self._run(lambda client: client.describe_group(log, group))

    def commit_group(
        self, log: str, group: str, partition: str, offset: str, *, claim: int | None = None
    ) -> dict[str, Any]:
        return self._run(lambda client: client.commit_group(log, group, partition, offset, claim=claim))

    def reset_group(self, log: str, group: str, to: str, *, partition: str | None = None) -> dict[str, Any]:
        return self._run(lambda client: client.reset_group(log, group, to, partition=partition))

    def delete_group(self, log: str, group: str) -> None:
        self._run(lambda client: client.delete_group(log, group))

    def list_transactions(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_transactions())

    def describe_transaction(self, transactional_id: str) -> dict[str, Any]:
        return self._run(lambda client: client.describe_transaction(transactional_id))

    def abort_transaction(self, transactional_id: str) -> dict[str, Any]:
        return self._run(lambda client: client.abort_transaction(transactional_id))

    def hanging_transactions(self, *, margin_ms: int | None = None) -> list[dict[str, Any]]:
        return self._run(lambda client: client.hanging_transactions(margin_ms=margin_ms))

    def add_user(self, name: str, password: str, *, roles: Sequence[str] = ()) -> None:
        self._run(lambda client: client.add_user(name, password, roles=roles))

    def set_password(self, name: str, password: str) -> None:
        self._run(lambda client: client.set_password(name, password))

    def set_roles(self, name: str, roles: Sequence[str]) -> None:
        self._run(lambda client: client.set_roles(name, roles))

    def remove_user(self, name: str) -> None:
        self._run(lambda client: client.remove_user(name))

    def list_users(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_users())

    def add_grant(
        self, principal: str, operation: str, resource: str, name: str = "", *, prefix: bool = False, deny: bool = False
    ) -> dict[str, Any]:
        return self._run(
            lambda client: client.add_grant(principal, operation, resource, name, prefix=prefix, deny=deny)
        )

    def remove_grant(
        self, principal: str, operation: str, resource: str, name: str = "", *, prefix: bool = False, deny: bool = False
    ) -> dict[str, Any]:
        return self._run(
            lambda client: client.remove_grant(principal, operation, resource, name, prefix=prefix, deny=deny)
        )

    def list_grants(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_grants())

    def whoami(self) -> dict[str, Any]:
        return self._run(lambda client: client.whoami())

    def node_status(self, node: int | None = None) -> dict[str, Any]:
        return self._run(lambda client: client.node_status(node))

    def drain_node(self, node: int) -> dict[str, Any]:
        return self._run(lambda client: client.drain_node(node))

    def repair_group(self, node: int, raft_group: int) -> dict[str, Any]:
        return self._run(lambda client: client.repair_group(node, raft_group))

    def resume_node(self, node: int) -> dict[str, Any]:
        return self._run(lambda client: client.resume_node(node))

    def list_transaction_groups(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_transaction_groups())

    def describe_transaction_group(self, writer: str) -> dict[str, Any]:
        return self._run(lambda client: client.describe_transaction_group(writer))

    def abort_transaction_group(self, writer: str) -> None:
        self._run(lambda client: client.abort_transaction_group(writer))

    def forget_transaction_group(self, writer: str) -> int | None:
        return self._run(lambda client: client.forget_transaction_group(writer))

    def describe_node(self, node: int) -> dict[str, Any]:
        return self._run(lambda client: client.describe_node(node))

    def readmit_node(self, node: int, *, incarnation: int | None = None) -> dict[str, Any]:
        return self._run(lambda client: client.readmit_node(node, incarnation=incarnation))

    def list_nodes(self) -> list[dict[str, Any]]:
        return self._run(lambda client: client.list_nodes())

    def cluster_status(self) -> dict[str, Any]:
        return self._run(lambda client: client.cluster_status())

    def log_info(self, name: str, *, complete: bool = False) -> list[PartitionInfo]:
        return self._run(lambda client: client.log_info(name, complete=complete))
