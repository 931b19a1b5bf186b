"""Commands, made from what a person asked for.

`from_request` takes the words of the management protocol ("log.create" and a map of arguments) and refuses what has
the wrong type; what a value means (ranges, names, whether a log exists) is decided by the state machine alone, so that
it is decided once. What is absent from an alteration stays as it is; null lifts a bound of retention, and ends
compression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.command_validation import WISHED
from cluster.metadata.shared_access_rules import rule_to_pb
from cluster.metadata.types import COORDINATOR_COUNT, COORDINATORS, GrantRecord, NodeRecord, RuleRecord, ScramKeys
from cluster.metadata.types import NOT_TOLD as NO_VERSIONS
from cluster.metadata.users_and_grants import grant_to_pb, keys_to_pb
from cluster.raft.membership.configuration import Replica
from cluster.raft.replication.message_validation import ANY, NODE
from cluster.stale_copy_detection import DirectoryStart
from cluster.versions import VersionRange

DEFAULT_PARTITIONS = 1
DEFAULT_REPLICAS = 3

NOT_TOLD = DirectoryStart()


class InvalidRequest(ValueError):
    """The request is wrong in itself: code `invalid-argument`. The message names the argument."""


def register_node(
    node: int,
    rpc_address: str,
    listeners: Mapping[str, str],
    incarnation: int = 0,
    start: DirectoryStart = NOT_TOLD,
    cluster_id: int = 0,
    versions: VersionRange = NO_VERSIONS,
    *,
    joins: bool = False,
) -> pb.Command:
    """Command that registers a node. `listeners`: advertised AMQP address by listener name, the default one first.
    `incarnation`, `start`: of the node's data directory; 0 (in tests) is not compared. `cluster_id`: drawn, for a
    cluster that has none yet. `versions`: that the node's program knows. `joins`: the cluster did not begin with it."""
    command = pb.RegisterNode(
        node=node, rpc_address=rpc_address, incarnation=incarnation, boot=start.boot, cluster_id=cluster_id,
        oldest=versions.oldest, newest=versions.newest, joins=joins,
    )  # fmt: skip
    command.marks.extend(start.marks)
    command.listeners.extend(pb.Listener(name=name, address=address) for name, address in listeners.items())
    return pb.Command(register_node=command)


def add_node(node: int) -> pb.Command:
    """Command that announces a node. Feature `nodes`, like the three below."""
    return pb.Command(add_node=pb.AddNode(node=_node(node)))


def leave_node(node: int) -> pb.Command:
    """Command by which a node begins to leave."""
    return pb.Command(leave_node=pb.LeaveNode(node=_node(node)))


def stay_node(node: int) -> pb.Command:
    """Command that takes back what was said of a node that leaves, or is to come."""
    return pb.Command(stay_node=pb.StayNode(node=_node(node)))


def remove_node(node: int) -> pb.Command:
    """Command that removes a node which keeps nothing any more."""
    return pb.Command(remove_node=pb.RemoveNode(node=node))


def _node(node: int) -> int:
    _whole("node", node)
    low, high = NODE
    if not low <= node <= high:
        raise InvalidRequest(f"node: out of range, it must be {low} to {high}")
    return node


def set_balance(
    balance: str = "",
    *,
    replace_after_s: int | None = None,
    disk_high: int | None = None,
    disk_low: int | None = None,
    disk_target: int | None = None,
    pace_bytes_per_s: int | None = None,
) -> pb.Command:
    """Command that changes settings of balancing and moves. None, and an empty text: as it is. Feature `membership`."""
    return pb.Command(
        set_balance=pb.SetBalance(
            balance=balance,
            replace_after_s=replace_after_s,
            disk_high=disk_high,
            disk_low=disk_low,
            disk_target=disk_target,
            pace_bytes_per_s=pace_bytes_per_s,
        )
    )


def set_rack(node: int, rack: str) -> pb.Command:
    """Command that notes where a node stands. Feature `racks`."""
    return pb.Command(set_rack=pb.SetRack(node=node, rack=rack))


def activate_version(version: int, heard: Iterable[NodeRecord]) -> pb.Command:
    """Command that activates a version. `heard`: all registered nodes, each as its latest start was heard."""
    starts = [pb.NodeStart(node=one.node, incarnation=one.incarnation, boot=one.start.boot) for one in heard]
    return pb.Command(activate_version=pb.ActivateVersion(version=version, starts=starts))


def readmit_node(node: int, incarnation: int) -> pb.Command:
    """Command for a node whose data are lost for good: it goes on with the empty directory of this incarnation."""
    for name, value, (low, high) in (("node", node, NODE), ("incarnation", incarnation, ANY)):
        _whole(name, value)
        if not low <= value <= high:
            raise InvalidRequest(f"{name}: out of range, it must be {low} to {high}")
    return pb.Command(readmit_node=pb.ReadmitNode(node=node, incarnation=incarnation))


def create_log(
    name: str,
    *,
    now_ms: int,
    partitions: int = DEFAULT_PARTITIONS,
    replicas: int = DEFAULT_REPLICAS,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    compression: str = "",
) -> pb.Command:
    return pb.Command(
        create_log=pb.CreateLog(
            name=name,
            partitions=partitions,
            replicas=replicas,
            retention_ms=retention_ms or 0,
            retention_bytes=retention_bytes or 0,
            now_ms=now_ms,
            compression=compression,
        )
    )


def create_coordinators(*, now_ms: int, nodes: int) -> pb.Command:
    """Command that creates the coordinators' log. `nodes`: the number of registered ones."""
    replicas = max(1, min(DEFAULT_REPLICAS, nodes))
    return create_log(COORDINATORS, now_ms=now_ms, partitions=COORDINATOR_COUNT, replicas=replicas)


def alter_log(
    name: str,
    *,
    partitions: int | None = None,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
    compression: str | None = None,
    replicas: int | None = None,
    away: Iterable[int] = (),
) -> pb.Command:
    """Command that alters a log. None: as it is. 0 lifts a bound, "" ends compression. `replicas`: feature
    `membership`; the nodes that are `away` are the last to keep one."""
    return pb.Command(
        alter_log=pb.AlterLog(
            name=name,
            partitions=partitions,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            compression=compression,
            replicas=replicas,
            away=away,
        )
    )


def reassign(items: Iterable[tuple[int, int, Sequence[int]]], *, reason: str = "", plan: int = 0) -> pb.Command:
    """Command that states targets. `items`: of each group the configuration version that its target was chosen for
    (0: any), and its nodes, preferred leader first. Feature `membership`."""
    targets = [pb.Target(group=group, version=version, replicas=nodes) for group, version, nodes in items]
    return pb.Command(reassign=pb.Reassign(items=targets, reason=reason, plan=plan))


def cancel_moves(groups: Iterable[int] = ()) -> pb.Command:
    """Command that ends the targets of groups, and asks for the end of their moves. No groups: of all."""
    return pb.Command(cancel_moves=pb.CancelMoves(groups=groups))


def finish_move(group: int, move: int, version: int, voters: Iterable[Replica]) -> pb.Command:
    """Command that reports a committed configuration in which a move is over."""
    replicas = [pb.Replica(node=one.node, birth=one.birth) for one in sorted(voters)]
    return pb.Command(finish_move=pb.FinishMove(group=group, move=move, version=version, replicas=replicas))


def stall_move(group: int, move: int, *, goes_on: bool = False) -> pb.Command:
    """Command that reports a move without progress. `goes_on`: a move that has made none goes on."""
    return pb.Command(stall_move=pb.StallMove(group=group, move=move, goes_on=goes_on))


def delete_log(name: str) -> pb.Command:
    return pb.Command(delete_log=pb.DeleteLog(name=name))


def put_user(
    name: str,
    keys: tuple[ScramKeys, ScramKeys] | None,
    *,
    is_new: bool,
    roles: Sequence[str] | None = None,
    secret: bytes = b"",
) -> pb.Command:
    """Command that sets a user. `keys`: of SHA-256 and SHA-512; None, as `roles`: as they are. `secret`: for a cluster
    that has none yet."""
    command = pb.PutUser(name=name, roles=roles or (), set_roles=roles is not None, is_new=is_new, secret=secret)
    if keys is not None:
        command.sha256.CopyFrom(keys_to_pb(keys[0]))
        command.sha512.CopyFrom(keys_to_pb(keys[1]))
    return pb.Command(put_user=command)


def remove_user(name: str) -> pb.Command:
    return pb.Command(remove_user=pb.RemoveUser(name=name))


def put_rule(rule: RuleRecord) -> pb.Command:
    return pb.Command(put_rule=pb.PutRule(rule=rule_to_pb(rule)))


def rotate_rule(name: str, primary: bytes) -> pb.Command:
    return pb.Command(rotate_rule=pb.RotateRule(name=name, primary=primary))


def remove_rule(name: str) -> pb.Command:
    return pb.Command(remove_rule=pb.RemoveRule(name=name))


def grant_command(grant: GrantRecord, *, remove: bool = False) -> pb.Command:
    if remove:
        return pb.Command(remove_grant=pb.RemoveGrant(grant=grant_to_pb(grant)))
    return pb.Command(put_grant=pb.PutGrant(grant=grant_to_pb(grant)))


def from_request(operation: str, args: Mapping[str, Any], *, now_ms: int, nodes: int) -> pb.Command:
    """Command of a client's request. `nodes`: the number of registered ones; a log is created with three replicas
    unless told otherwise, or as many as there are."""
    name = args.get("name")
    if not isinstance(name, str):
        raise InvalidRequest("name: must be a string")
    if name == COORDINATORS and operation == "log.create":
        raise InvalidRequest(f"name: {name} is made by the nodes themselves, when it is needed")
    try:
        if operation == "log.create":
            return create_log(
                name,
                now_ms=now_ms,
                partitions=_integer(args, "partitions", DEFAULT_PARTITIONS),
                replicas=_integer(args, "replicas", max(1, min(DEFAULT_REPLICAS, nodes))),
                retention_ms=_integer(args, "retention_ms", 0, null=0),
                retention_bytes=_integer(args, "retention_bytes", 0, null=0),
                compression=_text(args, "compression", ""),
            )
        if operation == "log.alter":
            return alter_log(
                name,
                partitions=_integer(args, "partitions", None),
                retention_ms=_integer(args, "retention_ms", None, null=0),
                retention_bytes=_integer(args, "retention_bytes", None, null=0),
                compression=_text(args, "compression", None),
                replicas=_integer(args, "replicas", None),
            )
        if operation == "log.delete":
            return delete_log(name)
    except ValueError as error:  # protobuf: text that is not Unicode
        raise InvalidRequest(str(error)) from error
    raise InvalidRequest(f"{operation}: not a command on logs")


def _integer(args: Mapping[str, Any], key: str, absent: Any, *, null: int | None = None) -> Any:
    if key not in args:
        return absent
    value = args[key]
    if value is None and null is not None:
        return null
    _whole(key, value)
    low, high = WISHED
    if not low <= value <= high:
        raise InvalidRequest(f"{key}: out of range, it must fit into 64 bits")
    return int(value)


def _text(args: Mapping[str, Any], key: str, absent: Any) -> Any:
    """Text argument of a request; null is the empty text."""
    value = args.get(key, absent)
    if key in args and value is None:
        return ""
    if value is not absent and not isinstance(value, str):
        raise InvalidRequest(f"{key}: must be a string or null, not {value!r}")
    return value


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name}: must be a whole number, not {value!r}")
