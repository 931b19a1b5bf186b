"""Administration over `$management`: logs, nodes, the cluster's state. How a request is carried, and which is repeated:
`transport/management_requests.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from holdfast.client.errors import ConfigurationError
from holdfast.client.options import check_time
from holdfast.client.transport.log_info import (
    PartitionInfo,
    read_complete_info,
    read_info,
)
from holdfast.client.transport.management_requests import request
from holdfast.client.transport.network import Network, NetworkOptions
from holdfast.client.transport.security.scram import password_keys

GROUPS_PER_ANSWER = 1000  # a node tells no more at once
PRODUCERS_PER_REQUEST = 1000  # about 100 KiB of answer


class AdminClient:
    """Administrative requests to one cluster.

    async with AdminClient("127.0.0.1:5672") as admin:
        await admin.create_log("trades", partitions=4, replicas=3)
    """

    def __init__(
        self, servers: str | Sequence[str], *, timeout_s: float = 30.0, options: NetworkOptions | None = None
    ) -> None:
        check_time("timeout_s", timeout_s)
        self._network = Network(servers, options)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._network.close()

    # ---------------------------------------------------------------- requests

    async def create_log(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        compression: str | None = None,
    ) -> dict[str, Any]:
        """Create a log; answers its description. Retention None: keep for ever. `compression` of its events
        where they are stored: gzip, zstd or none."""
        arguments = {
            "partitions": partitions,
            "replicas": replicas,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "compression": compression,
        }
        given = {key: value for key, value in arguments.items() if value is not None}
        _check_bounds(given)
        return await self._request("log", "create", name, given, changes=True)

    async def list_logs(self) -> list[dict[str, Any]]:
        """List all logs: name, partitions (how many), replicas, retention, compression."""
        return list((await self._request("log", "list", None, {}, changes=False)).get("logs", []))

    async def describe_log(self, name: str) -> dict[str, Any]:
        """Describe one log: its partitions with leader and replicas, its retention, its compression."""
        return await self._request("log", "describe", name, {}, changes=False)

    async def alter_log(self, name: str, **changes: int | str | None) -> dict[str, Any]:
        """Change `partitions` (more, never fewer), `retention_ms`, `retention_bytes` (None: keep for ever),
        `compression` (of events that are yet to come), `replicas` (of each partition; they move, see `list_moves`).
        What a shorter retention excludes is deleted within seconds."""
        _check_bounds(changes)
        return await self._request("log", "alter", name, changes, changes=True)

    async def reassign_partition(
        self,
        name: str,
        partition: str,
        to: Sequence[int],
        *,
        configuration_version: int = 0,
        allow_same_rack: bool = False,
    ) -> dict[str, Any]:
        """Let a partition move to these nodes, the preferred leader first. It goes there by moves of one replica each,
        which `list_moves` shows. `configuration_version`: refused if its replicas are those of another one; 0: any.
        `allow_same_rack`: not refused if replicas share a rack while a node of another one is free."""
        given: dict[str, str | int] = {
            "partition": _number(partition),
            "to": ",".join(map(str, to)),
            "configuration_version": configuration_version,
        }
        if allow_same_rack:  # nodes of earlier releases refuse a word that they do not know
            given["allow_same_rack"] = True
        return await self._request("log", "reassign", name, given, changes=True)

    async def list_moves(self, *, limit: int | None = None) -> dict[str, Any]:
        """List `moves` of replicas, under way and waiting, each with its state and what it waits for; `unsettled` names
        what else is not in order. `moving`, `under_way` and `stalled` count all; at most 1,000 are listed, and at most
        `limit`. 0: they are counted only, which is cheap."""
        return await self._request("cluster", "moves", None, _told(limit=limit), changes=False)

    async def cancel_moves(self, name: str | None = None, *, partition: str | None = None) -> dict[str, Any]:
        """Ask for the end of moves: of a log, of one of its partitions, or of all. Those that are too far go on:
        `list_moves` and `describe_log` tell. Answers those that were `asked`."""
        if name is None:
            return await self._request("cluster", "cancel-moves", None, {}, changes=True)
        given = {} if partition is None else {"partition": _number(partition)}
        return await self._request("log", "cancel-moves", name, given, changes=True)

    async def delete_log(self, name: str) -> None:
        """Delete a log with all its events."""
        await self._request("log", "delete", name, {}, changes=True)

    async def dump_log(
        self, name: str, partition: str = "0", *, after: int = 0, offset: str | None = None, limit: int = 100
    ) -> dict[str, Any]:
        """Dump `entries` of the partition's log as its leader stores them, after index `after`, or from the one that
        holds the event at `offset` on; at most `limit`. `last_index`: there is more while the last entry lies before
        it."""
        arguments: dict[str, Any] = {"partition": _number(partition), "after": after, "limit": limit}
        if offset is not None:
            arguments["offset"] = offset
        return await self._request("log", "dump", name, arguments, changes=False)

    async def list_producers(self, log: str, *, partition: str | None = None) -> list[dict[str, Any]]:
        """List the idempotent producers that a log's partitions remember, by partition and id: partition, producer_id
        (the producer group), epoch (the owner level), last_sequence, last_offset, last_active_ms, remembered."""
        if partition is None:
            partitions = [str(entry["partition"]) for entry in (await self.describe_log(log))["partitions"]]
        else:
            partitions = [partition]
        found: list[dict[str, Any]] = []
        for name in partitions:
            after = -1
            while True:
                given = {"partition": _number(name), "after": after, "limit": PRODUCERS_PER_REQUEST}
                page = await self._request("producer", "list", log, given, changes=False)
                producers = list(page.get("producers", []))
                found += producers
                if len(producers) < PRODUCERS_PER_REQUEST:
                    break
                after = int(producers[-1]["producer_id"])
        return found

    async def describe_producer(self, log: str, partition: str, producer_group_id: int) -> dict[str, Any]:
        """Describe what a partition remembers of one idempotent producer."""
        given = {"partition": _number(partition), "producer_id": producer_group_id}
        return await self._request("producer", "describe", log, given, changes=False)

    async def list_groups(self, log: str) -> list[dict[str, Any]]:
        """List the consumer groups of a log, by name: group, members, active_partitions, committed_partitions, lag
        (None while a partition has no committed position), known_lag (of the others), unknown_partitions (how many)."""
        found: list[dict[str, Any]] = []
        while True:
            given = {"after_group": found[-1]["group"] if found else None}
            page = list((await self._request("group", "list", log, given, changes=False)).get("groups", []))
            found += page
            if len(page) < GROUPS_PER_ANSWER:
                return found

    async def describe_group(self, log: str, group: str) -> dict[str, Any]:
        """Describe a group, where it stands, its readers, and how far it is behind: group, lag, known_lag and
        unknown_partitions (see `list_groups`), partitions."""
        return await self._request("group", "describe", log, {"group": group}, changes=False)

    async def commit_group(
        self, log: str, group: str, partition: str, offset: str, *, claim: int | None = None
    ) -> dict[str, Any]:
        """Commit a position: the event at `offset` and all before it are done. `claim`: in the name of a receiver;
        without it, only while nobody reads the partition for the group. Repeating it does no harm."""
        given = {"group": group, "partition": _number(partition), "offset": offset, "claim": claim}
        return await self._request("group", "commit", log, given, changes=False)

    async def reset_group(self, log: str, group: str, to: str, *, partition: str | None = None) -> dict[str, Any]:
        """Set a group that nobody reads for to `@earliest`, `@latest`, after an offset, or to `none`, in one partition
        or in all; where it stands then. Repeating it does no harm."""
        given = {"group": group, "to": to, "partition": None if partition is None else _number(partition)}
        return await self._request("group", "reset", log, given, changes=False)

    async def delete_group(self, log: str, group: str) -> None:
        """Forget a group that nobody reads for, with its positions and its epochs."""
        await self._request("group", "delete", log, {"group": group}, changes=True)

    async def list_transactions(self) -> list[dict[str, Any]]:
        """List the transactional ids that the cluster knows, by name: transactional_id, state, producer_id, epoch,
        timeout_ms, open_ms (None: no transaction is under way), partition_count, last (how the one before ended)."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = await self._request("transaction", "list", None, {"after_id": after}, changes=False)
            found += list(page.get("transactions", []))
            after = page.get("next")
            if after is None:
                return found

    async def describe_transaction(self, transactional_id: str) -> dict[str, Any]:
        """Describe a transactional id, with the partitions that take part, and its `coordinator`: raft_group, partition
        (of it) and leader, the node that decides."""
        return await self._request("transaction", "describe", transactional_id, {}, changes=False)

    async def abort_transaction(self, transactional_id: str) -> dict[str, Any]:
        """Roll back what the id has open, whichever producer holds it; that one hears of it at its commit."""
        return await self._request("transaction", "abort", transactional_id, {}, changes=True)

    async def hanging_transactions(self, *, margin_ms: int | None = None) -> list[dict[str, Any]]:
        """List transactions that partitions hold open beyond their timeout and a margin (10 s), the oldest first."""
        page = await self._request("transaction", "hanging", None, {"margin_ms": margin_ms}, changes=False)
        return list(page.get("transactions", []))

    async def list_transaction_groups(self) -> list[dict[str, Any]]:
        """List the writers of transaction groups that the cluster knows, by name: writer, run, last_committed (the
        batch), query, aborted (how the last one ended that was not committed); and of what is open: batch, state,
        open_ms, timeout_ms, members, prepared, oldest_member_ms (so long committed readers may have waited)."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            page = await self._request("transaction-group", "list", None, {"after_writer": after}, changes=False)
            found += list(page.get("writers", []))
            after = page.get("next")
            if after is None:
                return found

    async def describe_transaction_group(self, writer: str) -> dict[str, Any]:
        """Describe a writer of transaction groups, with the members of what is open (`group_members`): member, part,
        attempt, state, why (it was aborted), open_ms, lease_ms, partitions."""
        members: list[Any] = []
        after: int | None = 0
        while True:
            given = {"after_member": after}
            page = await self._request("transaction-group", "describe", writer, given, changes=False)
            members += list(page.get("group_members", []))
            after = page.pop("next", None)
            if after is None:
                return {**page, "group_members": members}

    async def abort_transaction_group(self, writer: str) -> None:
        """Roll back what the writer has open, whichever run that is; it hears of it at its commit."""
        await self._request("transaction-group", "abort", writer, {}, changes=True)

    async def forget_transaction_group(self, writer: str) -> int | None:
        """Forget a writer that will not come again, with its last batch that was committed, which is returned. Only
        then: what it replays afterwards is written again. Refused while it has a batch open."""
        found: int | None = (await self._request("transaction-group", "forget", writer, {}, changes=True)).get(
            "last_committed"
        )
        return found

    async def add_user(self, name: str, password: str, *, roles: Sequence[str] = ()) -> None:
        """Add a user. The password stays here: what is sent is what SCRAM needs to check it. The first user of a
        cluster must have the role `admin`; from then on nobody is let in without a credential."""
        keys = await asyncio.to_thread(password_keys, password)
        await self._request("user", "add", name, {**keys, "roles": list(roles)}, changes=True)

    async def set_password(self, name: str, password: str) -> None:
        """Set a user's password; everybody may set their own. Repeating it does no harm."""
        keys = await asyncio.to_thread(password_keys, password)
        await self._request("user", "password", name, keys, changes=False)

    async def set_roles(self, name: str, roles: Sequence[str]) -> None:
        """Give a user these roles and no others. Repeating it does no harm."""
        await self._request("user", "roles", name, {"roles": list(roles)}, changes=False)

    async def remove_user(self, name: str) -> None:
        """Remove a user. Its open links end. Grants to its name stay."""
        await self._request("user", "remove", name, {}, changes=True)

    async def list_users(self) -> list[dict[str, Any]]:
        """List users: name, roles."""
        return list((await self._request("user", "list", None, {}, changes=False)).get("users", []))

    async def add_grant(
        self, principal: str, operation: str, resource: str, name: str = "", *, prefix: bool = False, deny: bool = False
    ) -> dict[str, Any]:
        """Allow (or deny, which wins) an operation on a resource of that name, or on all whose names begin so.
        `principal`: a name, `role:NAME`, or `*`. Repeating it does no harm."""
        given = _grant(principal, operation, resource, name, prefix, deny)
        return await self._request("grant", "add", None, given, changes=False)

    async def remove_grant(
        self, principal: str, operation: str, resource: str, name: str = "", *, prefix: bool = False, deny: bool = False
    ) -> dict[str, Any]:
        """Take back what was granted with these words. Links that are no longer allowed end."""
        given = _grant(principal, operation, resource, name, prefix, deny)
        return await self._request("grant", "remove", None, given, changes=True)

    async def list_grants(self) -> list[dict[str, Any]]:
        """List grants: principal, effect (allow or deny), operation, resource, resource_name, prefix."""
        return list((await self._request("grant", "list", None, {}, changes=False)).get("grants", []))

    async def add_rule(self, name: str, claims: Sequence[str], *, scope: str = "") -> dict[str, Any]:
        """Add a shared access rule, with two new keys. `claims`: of send, listen and manage. `scope`: the log that it
        is for; "": all. Returns name, claims, scope."""
        return await self._request("rule", "add", name, {"claims": list(claims), "scope": scope}, changes=True)

    async def rotate_rule(self, name: str) -> None:
        """Give a rule a new primary key. The primary key becomes the secondary one, and that one ends."""
        await self._request("rule", "rotate", name, {}, changes=True)

    async def remove_rule(self, name: str) -> None:
        """Remove a rule. Links that its keys allowed end."""
        await self._request("rule", "remove", name, {}, changes=True)

    async def rule_keys(self, name: str) -> dict[str, Any]:
        """Read a rule with its keys: name, claims, scope, primary, secondary."""
        return await self._request("rule", "keys", name, {}, changes=False)

    async def list_rules(self) -> list[dict[str, Any]]:
        """List rules: name, claims, scope."""
        return list((await self._request("rule", "list", None, {}, changes=False)).get("rules", []))

    async def whoami(self) -> dict[str, Any]:
        """Ask as whom the node knows this client: principal, mechanism, roles, open_cluster, expires_ms."""
        return await self._request("user", "whoami", None, {}, changes=False)

    async def describe_node(self, node: int) -> dict[str, Any]:
        """Describe one node: its addresses, whether it is up, and which of its replicas are catching up."""
        return await self._request("node", "describe", str(node), {}, changes=False)

    async def readmit_node(self, node: int, *, incarnation: int | None = None) -> dict[str, Any]:
        """Let a node in that has lost its data and was started with an empty directory. Only for data that are lost for
        good: a node that comes back with its old data afterwards is refused. Repeating it does no harm."""
        return await self._request("node", "readmit", str(node), {"incarnation": incarnation}, changes=True)

    async def add_node(self, node: int) -> dict[str, Any]:
        """Announce a node: it may join the cluster from now on. Repeating it does no harm."""
        return await self._request("node", "add", str(node), {}, changes=True)

    async def remove_node(self, node: int, *, dry_run: bool = False) -> dict[str, Any]:
        """Let a node leave: it gets no new replicas, and is removed for good when it keeps none. Answers how many it
        keeps now, and its state. Repeating it does no harm. `dry_run`: change nothing, and raise if it may not
        leave."""
        arguments = {"dry_run": True} if dry_run else {}
        return await self._request("node", "remove", str(node), arguments, changes=not dry_run)

    async def cancel_node(self, node: int) -> dict[str, Any]:
        """Take back that a node is to leave, or is to come."""
        return await self._request("node", "cancel", str(node), {}, changes=True)

    async def announced_nodes(self) -> list[int]:
        """List nodes that were announced and have not come yet."""
        return list((await self._request("node", "list", None, {}, changes=False)).get("announced", []))

    async def list_nodes(self) -> list[dict[str, Any]]:
        """List all nodes as the node asked sees them: addresses, whether each is up, and whether it was refused."""
        return list((await self._request("node", "list", None, {}, changes=False)).get("nodes", []))

    async def node_status(self, node: int | None = None) -> dict[str, Any]:
        """Ask the node that answers for its own word; with `node`, an error when another one was reached."""
        return await self._request("node", "status", None, _of(node), changes=False)

    async def drain_node(self, node: int) -> dict[str, Any]:
        """Move the leaderships of the node that is connected to elsewhere; answers its status then. Safe to repeat."""
        return await self._request("node", "drain", None, _of(node), changes=False)

    async def resume_node(self, node: int) -> dict[str, Any]:
        """Let a drained node lead again. Safe to repeat."""
        return await self._request("node", "resume", None, _of(node), changes=False)

    async def repair_group(self, node: int, raft_group: int) -> dict[str, Any]:
        """Let the replica of a Raft group on the node that is connected to begin anew, empty and without a vote; what
        it had it gets from the others. Safe to repeat."""
        return await self._request("node", "repair", None, {"node": node, "raft_group": raft_group}, changes=False)

    async def cluster_status(self) -> dict[str, Any]:
        """Describe the cluster as the node asked sees it."""
        return await self._request("cluster", "status", None, {}, changes=False)

    async def finalize_upgrade(self, *, dry_run: bool = False, heard_s: int = 60) -> dict[str, Any]:
        """Activate the newest version that all nodes know, after which no node can go back to an earlier release.
        `heard_s`: seconds that every node must have been heard without a break. Answers `active_version`,
        `target_version`, `obstacles` (what is in the way, for people; without `dry_run` it is raised) and `nodes`.
        Repeating it does no harm."""
        return await self._request(
            "cluster", "finalize", None, {"dry_run": dry_run, "heard_s": heard_s}, changes=not dry_run
        )

    async def plan_balance(self, *, remove: int | None = None, successor: int | None = None) -> dict[str, Any]:
        """Plan how replicas should lie, and change nothing: evenly, or off the node `remove`, or all of those on the
        node `successor`. Answers `digest`, `partitions`, `bytes`, `seconds` (about, at the configured pace), `moves`
        (up to 1,000: `log`, `partition`, `from`, `to`, `replicas`, `preferred`, `leader`, `bytes`, `why`), `obstacles`
        (what cannot be done, for people) and `after` (of each node: `replicas`, `bytes`, `preferred`,
        `capacity_bytes`)."""
        return await self._request("cluster", "balance", None, _told(remove=remove, successor=successor), changes=False)

    async def apply_balance(
        self, digest: str, *, remove: int | None = None, successor: int | None = None
    ) -> dict[str, Any]:
        """Carry out the plan with that digest, exactly, or raise: it is stale when one of its partitions has changed.
        The other arguments are those with which it was shown. Answers as `plan_balance`; the moves go on afterwards."""
        arguments = _told(apply=digest, remove=remove, successor=successor)
        return await self._request("cluster", "balance", None, arguments, changes=True)

    async def balance_settings(
        self,
        balance: str | None = None,
        *,
        replace_after_s: int | None = None,
        disk_high: int | None = None,
        disk_low: int | None = None,
        disk_target: int | None = None,
        pace_bytes_per_s: int | None = None,
    ) -> dict[str, Any]:
        """Settings of balancing and of moves, after those that are named are changed. `balance`: off, repair or on.
        Marks of disks are percentages; the pace is that of copies, out of a node and into one."""
        arguments = _told(
            balance=balance,
            replace_after_s=replace_after_s,
            disk_high=disk_high,
            disk_low=disk_low,
            disk_target=disk_target,
            pace_bytes_per_s=pace_bytes_per_s,
        )
        return await self._request("cluster", "settings", None, arguments, changes=bool(arguments))

    async def log_info(self, name: str, *, complete: bool = False) -> list[PartitionInfo]:
        """Ask how far each partition reaches. `complete`: wait for partitions that have no leader now."""
        read = read_complete_info if complete else read_info
        return await read(self._network, name, timeout_s=self._timeout_s)

    # ---------------------------------------------------------------- the protocol

    async def _request(
        self, kind: str, operation: str, name: str | None, arguments: Mapping[str, Any], *, changes: bool
    ) -> dict[str, Any]:
        return await request(
            self._network, kind, operation, name, arguments, changes=changes, timeout_s=self._timeout_s
        )


def _told(**arguments: str | int | None) -> dict[str, str | int]:
    """Arguments that are told, by name."""
    return {name: value for name, value in arguments.items() if value is not None}


def _grant(principal: str, operation: str, resource: str, name: str, prefix: bool, deny: bool) -> dict[str, str | int]:
    given = {"principal": principal, "operation": operation, "resource": resource, "resource_name": name}
    return {**given, "prefix": int(prefix), "deny": int(deny)}


def _check_bounds(given: Mapping[str, Any]) -> None:
    """Bounds of retention are numbers whose unit their name tells; a text would have one of its own, or none."""
    for name, unit in (("retention_ms", "milliseconds"), ("retention_bytes", "bytes")):
        bound = given.get(name)
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise ConfigurationError(
                f"{name} is a whole number of {unit}, not {bound!r}",
                advice="for seven days write retention_ms=7 * 24 * 3600 * 1000; None keeps for ever",
            )


def _of(node: int | None) -> dict[str, int]:
    return {} if node is None else {"node": node}


def _number(partition: str) -> int:
    """Partitions are named by numbers in requests."""
    if not partition.isdecimal():
        raise ConfigurationError(f"{partition!r} is no partition: they are numbers, from 0 on")
    return int(partition)
