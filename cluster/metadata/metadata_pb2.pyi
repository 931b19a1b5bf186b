from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Listener(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class RegisterNode(_message.Message):
    __slots__ = ("node", "rpc_address", "listeners", "incarnation", "boot", "marks", "cluster_id", "oldest", "newest", "joins")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    node: int
    rpc_address: str
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    incarnation: int
    boot: int
    marks: _containers.RepeatedScalarFieldContainer[int]
    cluster_id: int
    oldest: int
    newest: int
    joins: bool
    def __init__(self, node: _Optional[int] = ..., rpc_address: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., marks: _Optional[_Iterable[int]] = ..., cluster_id: _Optional[int] = ..., oldest: _Optional[int] = ..., newest: _Optional[int] = ..., joins: _Optional[bool] = ...) -> None: ...

class AddNode(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: int
    def __init__(self, node: _Optional[int] = ...) -> None: ...

class LeaveNode(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: int
    def __init__(self, node: _Optional[int] = ...) -> None: ...

class StayNode(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: int
    def __init__(self, node: _Optional[int] = ...) -> None: ...

class RemoveNode(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: int
    def __init__(self, node: _Optional[int] = ...) -> None: ...

class Tombstone(_message.Message):
    __slots__ = ("node", "incarnations")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    node: int
    incarnations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[int] = ..., incarnations: _Optional[_Iterable[int]] = ...) -> None: ...

class ActivateVersion(_message.Message):
    __slots__ = ("version", "starts")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    starts: _containers.RepeatedCompositeFieldContainer[NodeStart]
    def __init__(self, version: _Optional[int] = ..., starts: _Optional[_Iterable[_Union[NodeStart, _Mapping]]] = ...) -> None: ...

class NodeStart(_message.Message):
    __slots__ = ("node", "incarnation", "boot")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    node: int
    incarnation: int
    boot: int
    def __init__(self, node: _Optional[int] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ...) -> None: ...

class ReadmitNode(_message.Message):
    __slots__ = ("node", "incarnation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node: int
    incarnation: int
    def __init__(self, node: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CreateLog(_message.Message):
    __slots__ = ("name", "partitions", "replicas", "retention_ms", "retention_bytes", "now_ms", "compression")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replicas: int
    retention_ms: int
    retention_bytes: int
    now_ms: int
    compression: str
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replicas: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., now_ms: _Optional[int] = ..., compression: _Optional[str] = ...) -> None: ...

class AlterLog(_message.Message):
    __slots__ = ("name", "partitions", "retention_ms", "retention_bytes", "compression", "replicas", "away")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    retention_ms: int
    retention_bytes: int
    compression: str
    replicas: int
    away: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., compression: _Optional[str] = ..., replicas: _Optional[int] = ..., away: _Optional[_Iterable[int]] = ...) -> None: ...

class SetRack(_message.Message):
    __slots__ = ("node", "rack")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    node: int
    rack: str
    def __init__(self, node: _Optional[int] = ..., rack: _Optional[str] = ...) -> None: ...

class DeleteLog(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ScramKeys(_message.Message):
    __slots__ = ("iterations", "salt", "stored_key", "server_key")
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    def __init__(self, iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...

class PutUser(_message.Message):
    __slots__ = ("name", "sha256", "sha512", "roles", "set_roles", "is_new", "secret")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SHA512_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    SET_ROLES_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: ScramKeys
    sha512: ScramKeys
    roles: _containers.RepeatedScalarFieldContainer[str]
    set_roles: bool
    is_new: bool
    secret: bytes
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[_Union[ScramKeys, _Mapping]] = ..., sha512: _Optional[_Union[ScramKeys, _Mapping]] = ..., roles: _Optional[_Iterable[str]] = ..., set_roles: _Optional[bool] = ..., is_new: _Optional[bool] = ..., secret: _Optional[bytes] = ...) -> None: ...

class RemoveUser(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("principal", "deny", "operation", "kind", "name", "prefix")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    principal: str
    deny: bool
    operation: str
    kind: str
    name: str
    prefix: bool
    def __init__(self, principal: _Optional[str] = ..., deny: _Optional[bool] = ..., operation: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., prefix: _Optional[bool] = ...) -> None: ...

class PutGrant(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ...) -> None: ...

class RemoveGrant(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("name", "primary", "secondary", "claims", "scope")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    SECONDARY_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    primary: bytes
    secondary: bytes
    claims: _containers.RepeatedScalarFieldContainer[str]
    scope: str
    def __init__(self, name: _Optional[str] = ..., primary: _Optional[bytes] = ..., secondary: _Optional[bytes] = ..., claims: _Optional[_Iterable[str]] = ..., scope: _Optional[str] = ...) -> None: ...

class PutRule(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: Rule
    def __init__(self, rule: _Optional[_Union[Rule, _Mapping]] = ...) -> None: ...

class RotateRule(_message.Message):
    __slots__ = ("name", "primary")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    name: str
    primary: bytes
    def __init__(self, name: _Optional[str] = ..., primary: _Optional[bytes] = ...) -> None: ...

class RemoveRule(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("node", "birth")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BIRTH_FIELD_NUMBER: _ClassVar[int]
    node: int
    birth: int
    def __init__(self, node: _Optional[int] = ..., birth: _Optional[int] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("group", "version", "replicas")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    group: int
    version: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[int] = ..., version: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class Reassign(_message.Message):
    __slots__ = ("items", "reason", "plan")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Target]
    reason: str
    plan: int
    def __init__(self, items: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., reason: _Optional[str] = ..., plan: _Optional[int] = ...) -> None: ...

class CancelMoves(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[int]] = ...) -> None: ...

class FinishMove(_message.Message):
    __slots__ = ("group", "move", "version", "replicas")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    group: int
    move: int
    version: int
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    def __init__(self, group: _Optional[int] = ..., move: _Optional[int] = ..., version: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ...) -> None: ...

class StallMove(_message.Message):
    __slots__ = ("group", "move", "goes_on")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    group: int
    move: int
    goes_on: bool
    def __init__(self, group: _Optional[int] = ..., move: _Optional[int] = ..., goes_on: _Optional[bool] = ...) -> None: ...

class SetBalance(_message.Message):
    __slots__ = ("balance", "replace_after_s", "disk_high", "disk_low", "disk_target", "pace_bytes_per_s")
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    DISK_HIGH_FIELD_NUMBER: _ClassVar[int]
    DISK_LOW_FIELD_NUMBER: _ClassVar[int]
    DISK_TARGET_FIELD_NUMBER: _ClassVar[int]
    PACE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    balance: str
    replace_after_s: int
    disk_high: int
    disk_low: int
    disk_target: int
    pace_bytes_per_s: int
    def __init__(self, balance: _Optional[str] = ..., replace_after_s: _Optional[int] = ..., disk_high: _Optional[int] = ..., disk_low: _Optional[int] = ..., disk_target: _Optional[int] = ..., pace_bytes_per_s: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("request_id", "register_node", "create_log", "alter_log", "delete_log", "readmit_node", "put_user", "remove_user", "put_grant", "remove_grant", "activate_version", "put_rule", "rotate_rule", "remove_rule", "set_rack", "reassign", "cancel_moves", "finish_move", "stall_move", "add_node", "leave_node", "stay_node", "remove_node", "set_balance")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REGISTER_NODE_FIELD_NUMBER: _ClassVar[int]
    CREATE_LOG_FIELD_NUMBER: _ClassVar[int]
    ALTER_LOG_FIELD_NUMBER: _ClassVar[int]
    DELETE_LOG_FIELD_NUMBER: _ClassVar[int]
    READMIT_NODE_FIELD_NUMBER: _ClassVar[int]
    PUT_USER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_USER_FIELD_NUMBER: _ClassVar[int]
    PUT_GRANT_FIELD_NUMBER: _ClassVar[int]
    REMOVE_GRANT_FIELD_NUMBER: _ClassVar[int]
    ACTIVATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PUT_RULE_FIELD_NUMBER: _ClassVar[int]
    ROTATE_RULE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_RULE_FIELD_NUMBER: _ClassVar[int]
    SET_RACK_FIELD_NUMBER: _ClassVar[int]
    REASSIGN_FIELD_NUMBER: _ClassVar[int]
    CANCEL_MOVES_FIELD_NUMBER: _ClassVar[int]
    FINISH_MOVE_FIELD_NUMBER: _ClassVar[int]
    STALL_MOVE_FIELD_NUMBER: _ClassVar[int]
    ADD_NODE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_NODE_FIELD_NUMBER: _ClassVar[int]
    STAY_NODE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_NODE_FIELD_NUMBER: _ClassVar[int]
    SET_BALANCE_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    register_node: RegisterNode
    create_log: CreateLog
    alter_log: AlterLog
    delete_log: DeleteLog
    readmit_node: ReadmitNode
    put_user: PutUser
    remove_user: RemoveUser
    put_grant: PutGrant
    remove_grant: RemoveGrant
    activate_version: ActivateVersion
    put_rule: PutRule
    rotate_rule: RotateRule
    remove_rule: RemoveRule
    set_rack: SetRack
    reassign: Reassign
    cancel_moves: CancelMoves
    finish_move: FinishMove
    stall_move: StallMove
    add_node: AddNode
    leave_node: LeaveNode
    stay_node: StayNode
    remove_node: RemoveNode
    set_balance: SetBalance
    def __init__(self, request_id: _Optional[bytes] = ..., register_node: _Optional[_Union[RegisterNode, _Mapping]] = ..., create_log: _Optional[_Union[CreateLog, _Mapping]] = ..., alter_log: _Optional[_Union[AlterLog, _Mapping]] = ..., delete_log: _Optional[_Union[DeleteLog, _Mapping]] = ..., readmit_node: _Optional[_Union[ReadmitNode, _Mapping]] = ..., put_user: _Optional[_Union[PutUser, _Mapping]] = ..., remove_user: _Optional[_Union[RemoveUser, _Mapping]] = ..., put_grant: _Optional[_Union[PutGrant, _Mapping]] = ..., remove_grant: _Optional[_Union[RemoveGrant, _Mapping]] = ..., activate_version: _Optional[_Union[ActivateVersion, _Mapping]] = ..., put_rule: _Optional[_Union[PutRule, _Mapping]] = ..., rotate_rule: _Optional[_Union[RotateRule, _Mapping]] = ..., remove_rule: _Optional[_Union[RemoveRule, _Mapping]] = ..., set_rack: _Optional[_Union[SetRack, _Mapping]] = ..., reassign: _Optional[_Union[Reassign, _Mapping]] = ..., cancel_moves: _Optional[_Union[CancelMoves, _Mapping]] = ..., finish_move: _Optional[_Union[FinishMove, _Mapping]] = ..., stall_move: _Optional[_Union[StallMove, _Mapping]] = ..., add_node: _Optional[_Union[AddNode, _Mapping]] = ..., leave_node: _Optional[_Union[LeaveNode, _Mapping]] = ..., stay_node: _Optional[_Union[StayNode, _Mapping]] = ..., remove_node: _Optional[_Union[RemoveNode, _Mapping]] = ..., set_balance: _Optional[_Union[SetBalance, _Mapping]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("group", "replicas", "births", "founding", "configuration_version", "target", "move", "reason", "plan")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    BIRTHS_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    group: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    births: _containers.RepeatedScalarFieldContainer[int]
    founding: _containers.RepeatedScalarFieldContainer[int]
    configuration_version: int
    target: _containers.RepeatedScalarFieldContainer[int]
    move: Move
    reason: str
    plan: int
    def __init__(self, group: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., births: _Optional[_Iterable[int]] = ..., founding: _Optional[_Iterable[int]] = ..., configuration_version: _Optional[int] = ..., target: _Optional[_Iterable[int]] = ..., move: _Optional[_Union[Move, _Mapping]] = ..., reason: _Optional[str] = ..., plan: _Optional[int] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("id", "version", "add", "remove", "cancel_asked", "stalled", "reason", "plan")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ASKED_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    id: int
    version: int
    add: Replica
    remove: Replica
    cancel_asked: bool
    stalled: bool
    reason: str
    plan: int
    def __init__(self, id: _Optional[int] = ..., version: _Optional[int] = ..., add: _Optional[_Union[Replica, _Mapping]] = ..., remove: _Optional[_Union[Replica, _Mapping]] = ..., cancel_asked: _Optional[bool] = ..., stalled: _Optional[bool] = ..., reason: _Optional[str] = ..., plan: _Optional[int] = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ("name", "id", "replicas", "retention_ms", "retention_bytes", "created_ms", "partitions", "compression")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    replicas: int
    retention_ms: int
    retention_bytes: int
    created_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    compression: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., replicas: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., created_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., compression: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("node", "rpc_address", "listeners", "incarnation", "readmissions", "lost_below_group", "former_incarnations", "boot", "mark", "oldest", "newest", "rack", "leaving", "birth", "lost_below_birth")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    READMISSIONS_FIELD_NUMBER: _ClassVar[int]
    LOST_BELOW_GROUP_FIELD_NUMBER: _ClassVar[int]
    FORMER_INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    BIRTH_FIELD_NUMBER: _ClassVar[int]
    LOST_BELOW_BIRTH_FIELD_NUMBER: _ClassVar[int]
    node: int
    rpc_address: str
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    incarnation: int
    readmissions: int
    lost_below_group: int
    former_incarnations: _containers.RepeatedScalarFieldContainer[int]
    boot: int
    mark: int
    oldest: int
    newest: int
    rack: str
    leaving: bool
    birth: int
    lost_below_birth: int
    def __init__(self, node: _Optional[int] = ..., rpc_address: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., incarnation: _Optional[int] = ..., readmissions: _Optional[int] = ..., lost_below_group: _Optional[int] = ..., former_incarnations: _Optional[_Iterable[int]] = ..., boot: _Optional[int] = ..., mark: _Optional[int] = ..., oldest: _Optional[int] = ..., newest: _Optional[int] = ..., rack: _Optional[str] = ..., leaving: _Optional[bool] = ..., birth: _Optional[int] = ..., lost_below_birth: _Optional[int] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("code", "message", "log")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    log: Log
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., log: _Optional[_Union[Log, _Mapping]] = ...) -> None: ...

class Remembered(_message.Message):
    __slots__ = ("request_id", "code", "message", "log")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    code: str
    message: str
    log: str
    def __init__(self, request_id: _Optional[bytes] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., log: _Optional[str] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("name", "sha256", "sha512", "roles")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SHA512_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: ScramKeys
    sha512: ScramKeys
    roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[_Union[ScramKeys, _Mapping]] = ..., sha512: _Optional[_Union[ScramKeys, _Mapping]] = ..., roles: _Optional[_Iterable[str]] = ...) -> None: ...

class Balance(_message.Message):
    __slots__ = ("balance", "replace_after_s", "disk_high", "disk_low", "disk_target", "pace_bytes_per_s")
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    DISK_HIGH_FIELD_NUMBER: _ClassVar[int]
    DISK_LOW_FIELD_NUMBER: _ClassVar[int]
    DISK_TARGET_FIELD_NUMBER: _ClassVar[int]
    PACE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    balance: str
    replace_after_s: int
    disk_high: int
    disk_low: int
    disk_target: int
    pace_bytes_per_s: int
    def __init__(self, balance: _Optional[str] = ..., replace_after_s: _Optional[int] = ..., disk_high: _Optional[int] = ..., disk_low: _Optional[int] = ..., disk_target: _Optional[int] = ..., pace_bytes_per_s: _Optional[int] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("version", "next_group", "next_log_id", "nodes", "logs", "remembered", "users", "grants", "access_secret", "cluster_id", "active_version", "rules", "next_birth", "announced", "tombstones", "balance")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_GROUP_FIELD_NUMBER: _ClassVar[int]
    NEXT_LOG_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_SECRET_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_BIRTH_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    next_group: int
    next_log_id: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    logs: _containers.RepeatedCompositeFieldContainer[Log]
    remembered: _containers.RepeatedCompositeFieldContainer[Remembered]
    users: _containers.RepeatedCompositeFieldContainer[User]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    access_secret: bytes
    cluster_id: int
    active_version: int
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    next_birth: int
    announced: _containers.RepeatedScalarFieldContainer[int]
    tombstones: _containers.RepeatedCompositeFieldContainer[Tombstone]
    balance: Balance
    def __init__(self, version: _Optional[int] = ..., next_group: _Optional[int] = ..., next_log_id: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., logs: _Optional[_Iterable[_Union[Log, _Mapping]]] = ..., remembered: _Optional[_Iterable[_Union[Remembered, _Mapping]]] = ..., users: _Optional[_Iterable[_Union[User, _Mapping]]] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., access_secret: _Optional[bytes] = ..., cluster_id: _Optional[int] = ..., active_version: _Optional[int] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., next_birth: _Optional[int] = ..., announced: _Optional[_Iterable[int]] = ..., tombstones: _Optional[_Iterable[_Union[Tombstone, _Mapping]]] = ..., balance: _Optional[_Union[Balance, _Mapping]] = ...) -> None: ...
