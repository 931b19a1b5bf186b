from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RaftMessage(_message.Message):
    __slots__ = ("group", "version", "term", "append", "append_reply", "vote_request", "vote_reply", "timeout_now", "stale_term", "resigned", "node_heartbeat", "node_heartbeat_reply", "not_member", "to")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPEND_REPLY_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_REPLY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    STALE_TERM_FIELD_NUMBER: _ClassVar[int]
    RESIGNED_FIELD_NUMBER: _ClassVar[int]
    NODE_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    NODE_HEARTBEAT_REPLY_FIELD_NUMBER: _ClassVar[int]
    NOT_MEMBER_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    group: int
    version: int
    term: int
    append: AppendEntries
    append_reply: AppendReply
    vote_request: VoteRequest
    vote_reply: VoteReply
    timeout_now: TimeoutNow
    stale_term: StaleTerm
    resigned: Resigned
    node_heartbeat: NodeHeartbeat
    node_heartbeat_reply: NodeHeartbeatReply
    not_member: NotMember
    to: int
    def __init__(self, group: _Optional[int] = ..., version: _Optional[int] = ..., term: _Optional[int] = ..., append: _Optional[_Union[AppendEntries, _Mapping]] = ..., append_reply: _Optional[_Union[AppendReply, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_reply: _Optional[_Union[VoteReply, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ..., stale_term: _Optional[_Union[StaleTerm, _Mapping]] = ..., resigned: _Optional[_Union[Resigned, _Mapping]] = ..., node_heartbeat: _Optional[_Union[NodeHeartbeat, _Mapping]] = ..., node_heartbeat_reply: _Optional[_Union[NodeHeartbeatReply, _Mapping]] = ..., not_member: _Optional[_Union[NotMember, _Mapping]] = ..., to: _Optional[int] = ...) -> None: ...

class ReplicaRecord(_message.Message):
    __slots__ = ("node", "birth")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BIRTH_FIELD_NUMBER: _ClassVar[int]
    node: int
    birth: int
    def __init__(self, node: _Optional[int] = ..., birth: _Optional[int] = ...) -> None: ...

class ConfigurationRecord(_message.Message):
    __slots__ = ("version", "voters", "outgoing", "learners", "demoted", "move", "ended")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OUTGOING_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    DEMOTED_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    version: int
    voters: _containers.RepeatedCompositeFieldContainer[ReplicaRecord]
    outgoing: _containers.RepeatedCompositeFieldContainer[ReplicaRecord]
    learners: _containers.RepeatedCompositeFieldContainer[ReplicaRecord]
    demoted: _containers.RepeatedCompositeFieldContainer[ReplicaRecord]
    move: int
    ended: int
    def __init__(self, version: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[ReplicaRecord, _Mapping]]] = ..., outgoing: _Optional[_Iterable[_Union[ReplicaRecord, _Mapping]]] = ..., learners: _Optional[_Iterable[_Union[ReplicaRecord, _Mapping]]] = ..., demoted: _Optional[_Iterable[_Union[ReplicaRecord, _Mapping]]] = ..., move: _Optional[int] = ..., ended: _Optional[int] = ...) -> None: ...

class AppendEntries(_message.Message):
    __slots__ = ("sequence", "commit_index", "has_previous", "previous_index", "previous_term", "entries", "entry_terms", "retained_from", "release_index", "release_mark", "acknowledged_index", "acknowledged_term", "quiesce", "entries_beside", "paced")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    HAS_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_TERMS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FROM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_INDEX_FIELD_NUMBER: _ClassVar[int]
    RELEASE_MARK_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_INDEX_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_TERM_FIELD_NUMBER: _ClassVar[int]
    QUIESCE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_BESIDE_FIELD_NUMBER: _ClassVar[int]
    PACED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    commit_index: int
    has_previous: bool
    previous_index: int
    previous_term: int
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    entry_terms: _containers.RepeatedScalarFieldContainer[int]
    retained_from: int
    release_index: int
    release_mark: int
    acknowledged_index: int
    acknowledged_term: int
    quiesce: bool
    entries_beside: bool
    paced: bool
    def __init__(self, sequence: _Optional[int] = ..., commit_index: _Optional[int] = ..., has_previous: _Optional[bool] = ..., previous_index: _Optional[int] = ..., previous_term: _Optional[int] = ..., entries: _Optional[_Iterable[bytes]] = ..., entry_terms: _Optional[_Iterable[int]] = ..., retained_from: _Optional[int] = ..., release_index: _Optional[int] = ..., release_mark: _Optional[int] = ..., acknowledged_index: _Optional[int] = ..., acknowledged_term: _Optional[int] = ..., quiesce: _Optional[bool] = ..., entries_beside: _Optional[bool] = ..., paced: _Optional[bool] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("sequence", "next_index", "success", "reset", "mute", "quiesced", "rest_ms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    MUTE_FIELD_NUMBER: _ClassVar[int]
    QUIESCED_FIELD_NUMBER: _ClassVar[int]
    REST_MS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    next_index: int
    success: bool
    reset: bool
    mute: int
    quiesced: bool
    rest_ms: int
    def __init__(self, sequence: _Optional[int] = ..., next_index: _Optional[int] = ..., success: _Optional[bool] = ..., reset: _Optional[bool] = ..., mute: _Optional[int] = ..., quiesced: _Optional[bool] = ..., rest_ms: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("last_index", "last_term", "pre", "transfer", "round", "others_grant")
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    PRE_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OTHERS_GRANT_FIELD_NUMBER: _ClassVar[int]
    last_index: int
    last_term: int
    pre: bool
    transfer: bool
    round: int
    others_grant: bool
    def __init__(self, last_index: _Optional[int] = ..., last_term: _Optional[int] = ..., pre: _Optional[bool] = ..., transfer: _Optional[bool] = ..., round: _Optional[int] = ..., others_grant: _Optional[bool] = ...) -> None: ...

class VoteReply(_message.Message):
    __slots__ = ("pre", "granted", "round")
    PRE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    pre: bool
    granted: bool
    round: int
    def __init__(self, pre: _Optional[bool] = ..., granted: _Optional[bool] = ..., round: _Optional[int] = ...) -> None: ...

class NotMember(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StaleTerm(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resigned(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeHeartbeat(_message.Message):
    __slots__ = ("life", "sequence", "quiet", "left")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    life: int
    sequence: int
    quiet: int
    left: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, life: _Optional[int] = ..., sequence: _Optional[int] = ..., quiet: _Optional[int] = ..., left: _Optional[_Iterable[int]] = ...) -> None: ...

class NodeHeartbeatReply(_message.Message):
    __slots__ = ("life", "asked_by", "sequence", "differs", "left")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    life: int
    asked_by: int
    sequence: int
    differs: bool
    left: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, life: _Optional[int] = ..., asked_by: _Optional[int] = ..., sequence: _Optional[int] = ..., differs: _Optional[bool] = ..., left: _Optional[_Iterable[int]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("group", "version", "number", "snapshot", "entries_from", "rows_after", "state_from", "max_bytes")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FROM_FIELD_NUMBER: _ClassVar[int]
    ROWS_AFTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FROM_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    group: int
    version: int
    number: int
    snapshot: int
    entries_from: int
    rows_after: bytes
    state_from: int
    max_bytes: int
    def __init__(self, group: _Optional[int] = ..., version: _Optional[int] = ..., number: _Optional[int] = ..., snapshot: _Optional[int] = ..., entries_from: _Optional[int] = ..., rows_after: _Optional[bytes] = ..., state_from: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("group", "version", "number", "checksum", "body", "active", "rest_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    REST_MS_FIELD_NUMBER: _ClassVar[int]
    group: int
    version: int
    number: int
    checksum: int
    body: bytes
    active: int
    rest_ms: int
    def __init__(self, group: _Optional[int] = ..., version: _Optional[int] = ..., number: _Optional[int] = ..., checksum: _Optional[int] = ..., body: _Optional[bytes] = ..., active: _Optional[int] = ..., rest_ms: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("snapshot", "base_index", "base_term", "index", "state_bytes", "configuration")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    BASE_INDEX_FIELD_NUMBER: _ClassVar[int]
    BASE_TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    base_index: int
    base_term: int
    index: int
    state_bytes: int
    configuration: ConfigurationRecord
    def __init__(self, snapshot: _Optional[int] = ..., base_index: _Optional[int] = ..., base_term: _Optional[int] = ..., index: _Optional[int] = ..., state_bytes: _Optional[int] = ..., configuration: _Optional[_Union[ConfigurationRecord, _Mapping]] = ...) -> None: ...

class FetchBody(_message.Message):
    __slots__ = ("refusal", "manifest", "entries", "entry_terms", "row_keys", "row_values", "state", "last")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_TERMS_FIELD_NUMBER: _ClassVar[int]
    ROW_KEYS_FIELD_NUMBER: _ClassVar[int]
    ROW_VALUES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    manifest: Manifest
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    entry_terms: _containers.RepeatedScalarFieldContainer[int]
    row_keys: _containers.RepeatedScalarFieldContainer[bytes]
    row_values: _containers.RepeatedScalarFieldContainer[bytes]
    state: bytes
    last: bool
    def __init__(self, refusal: _Optional[str] = ..., manifest: _Optional[_Union[Manifest, _Mapping]] = ..., entries: _Optional[_Iterable[bytes]] = ..., entry_terms: _Optional[_Iterable[int]] = ..., row_keys: _Optional[_Iterable[bytes]] = ..., row_values: _Optional[_Iterable[bytes]] = ..., state: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...
