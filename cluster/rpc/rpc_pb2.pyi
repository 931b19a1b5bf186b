from cluster.raft import raft_pb2 as _raft_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("cluster", "node", "dialled", "protocol", "incarnation", "expected", "members", "is_new", "boot", "marks", "oldest", "newest", "cluster_id")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DIALLED_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: int
    dialled: int
    protocol: int
    incarnation: int
    expected: int
    members: _containers.RepeatedScalarFieldContainer[int]
    is_new: bool
    boot: int
    marks: _containers.RepeatedScalarFieldContainer[int]
    oldest: int
    newest: int
    cluster_id: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[int] = ..., dialled: _Optional[int] = ..., protocol: _Optional[int] = ..., incarnation: _Optional[int] = ..., expected: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., is_new: _Optional[bool] = ..., boot: _Optional[int] = ..., marks: _Optional[_Iterable[int]] = ..., oldest: _Optional[int] = ..., newest: _Optional[int] = ..., cluster_id: _Optional[int] = ...) -> None: ...

class LeaderHints(_message.Message):
    __slots__ = ("groups", "terms", "leaders")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[int]
    terms: _containers.RepeatedScalarFieldContainer[int]
    leaders: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[int]] = ..., terms: _Optional[_Iterable[int]] = ..., leaders: _Optional[_Iterable[int]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "messages", "hints", "clock", "active")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    messages: _containers.RepeatedCompositeFieldContainer[_raft_pb2.RaftMessage]
    hints: LeaderHints
    clock: Clock
    active: ActiveVersion
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_raft_pb2.RaftMessage, _Mapping]]] = ..., hints: _Optional[_Union[LeaderHints, _Mapping]] = ..., clock: _Optional[_Union[Clock, _Mapping]] = ..., active: _Optional[_Union[ActiveVersion, _Mapping]] = ...) -> None: ...

class ActiveVersion(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class Clock(_message.Message):
    __slots__ = ("wall_ms",)
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    wall_ms: int
    def __init__(self, wall_ms: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ("code", "detail", "copy", "removed")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    code: int
    detail: str
    copy: str
    removed: bool
    def __init__(self, code: _Optional[int] = ..., detail: _Optional[str] = ..., copy: _Optional[str] = ..., removed: _Optional[bool] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "retriable", "detail", "leader", "known", "entry_index", "entry_term")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ENTRY_INDEX_FIELD_NUMBER: _ClassVar[int]
    ENTRY_TERM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    retriable: bool
    detail: str
    leader: int
    known: int
    entry_index: int
    entry_term: int
    def __init__(self, kind: _Optional[str] = ..., retriable: _Optional[bool] = ..., detail: _Optional[str] = ..., leader: _Optional[int] = ..., known: _Optional[int] = ..., entry_index: _Optional[int] = ..., entry_term: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("id", "batch", "begins_for", "timeout_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FOR_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    batch: bytes
    begins_for: int
    timeout_ms: int
    def __init__(self, id: _Optional[int] = ..., batch: _Optional[bytes] = ..., begins_for: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class AppendFrame(_message.Message):
    __slots__ = ("group", "requests")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    group: int
    requests: _containers.RepeatedCompositeFieldContainer[AppendRequest]
    def __init__(self, group: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[AppendRequest, _Mapping]]] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("id", "base_offset", "timestamp_ms", "failure", "duplicates", "rows")
    ID_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    id: int
    base_offset: int
    timestamp_ms: int
    failure: Failure
    duplicates: int
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    def __init__(self, id: _Optional[int] = ..., base_offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., duplicates: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("records", "base_offset")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    records: int
    base_offset: int
    def __init__(self, records: _Optional[int] = ..., base_offset: _Optional[int] = ...) -> None: ...

class AppendReplies(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[AppendReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[AppendReply, _Mapping]]] = ...) -> None: ...

class ReadOpen(_message.Message):
    __slots__ = ("group", "earliest", "latest", "after_offset", "after_time_ms", "window_bytes", "owner_key", "owner_claim", "from_offset", "uncommitted")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    AFTER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    AFTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNER_KEY_FIELD_NUMBER: _ClassVar[int]
    OWNER_CLAIM_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    group: int
    earliest: bool
    latest: bool
    after_offset: int
    after_time_ms: int
    window_bytes: int
    owner_key: str
    owner_claim: int
    from_offset: int
    uncommitted: bool
    def __init__(self, group: _Optional[int] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., after_offset: _Optional[int] = ..., after_time_ms: _Optional[int] = ..., window_bytes: _Optional[int] = ..., owner_key: _Optional[str] = ..., owner_claim: _Optional[int] = ..., from_offset: _Optional[int] = ..., uncommitted: _Optional[bool] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("open", "credit_bytes")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    open: ReadOpen
    credit_bytes: int
    def __init__(self, open: _Optional[_Union[ReadOpen, _Mapping]] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("batches", "failure", "next_offset")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    failure: Failure
    next_offset: int
    def __init__(self, batches: _Optional[_Iterable[bytes]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: int
    def __init__(self, group: _Optional[int] = ...) -> None: ...

class InfoReply(_message.Message):
    __slots__ = ("partition", "earliest_offset", "latest_offset", "next_offset", "events", "bytes", "leader", "replicas", "last_timestamp_ms", "failure", "stable_offset", "open_transactions", "aborted_transactions")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LATEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OPEN_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ABORTED_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    partition: str
    earliest_offset: int
    latest_offset: int
    next_offset: int
    events: int
    bytes: int
    leader: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    last_timestamp_ms: int
    failure: Failure
    stable_offset: int
    open_transactions: int
    aborted_transactions: int
    def __init__(self, partition: _Optional[str] = ..., earliest_offset: _Optional[int] = ..., latest_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., events: _Optional[int] = ..., bytes: _Optional[int] = ..., leader: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., last_timestamp_ms: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., stable_offset: _Optional[int] = ..., open_transactions: _Optional[int] = ..., aborted_transactions: _Optional[int] = ...) -> None: ...

class OpenProducerRequest(_message.Message):
    __slots__ = ("group", "producer_id", "epoch", "last_sequence", "renews")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RENEWS_FIELD_NUMBER: _ClassVar[int]
    group: int
    producer_id: int
    epoch: int
    last_sequence: int
    renews: bool
    def __init__(self, group: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., renews: _Optional[bool] = ...) -> None: ...

class OpenProducerReply(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_sequence", "failure")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_sequence: int
    failure: Failure
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class ProducersRequest(_message.Message):
    __slots__ = ("group", "after", "limit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    group: int
    after: int
    limit: int
    def __init__(self, group: _Optional[int] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ProducerInfo(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_sequence", "last_offset", "last_active_ms", "remembered")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTIVE_MS_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_active_ms: int
    remembered: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_offset: _Optional[int] = ..., last_active_ms: _Optional[int] = ..., remembered: _Optional[int] = ...) -> None: ...

class ProducersReply(_message.Message):
    __slots__ = ("producers", "failure")
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerInfo]
    failure: Failure
    def __init__(self, producers: _Optional[_Iterable[_Union[ProducerInfo, _Mapping]]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class GroupRequest(_message.Message):
    __slots__ = ("group", "question")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    group: int
    question: bytes
    def __init__(self, group: _Optional[int] = ..., question: _Optional[bytes] = ...) -> None: ...

class GroupReply(_message.Message):
    __slots__ = ("answer", "failure")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    answer: bytes
    failure: Failure
    def __init__(self, answer: _Optional[bytes] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConfirmReply(_message.Message):
    __slots__ = ("index", "failure")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    index: int
    failure: Failure
    def __init__(self, index: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class ReplicasRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[int]] = ...) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("group", "applied", "last", "votes", "phase", "fetch_first", "fetch_next", "fetch_last", "received_bytes", "refused_pieces", "quarantined", "move_state", "move_waits_for", "move_entries", "move_entries_left", "move_bytes_left", "move_stalled")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIRST_FIELD_NUMBER: _ClassVar[int]
    FETCH_NEXT_FIELD_NUMBER: _ClassVar[int]
    FETCH_LAST_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_PIECES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    MOVE_STATE_FIELD_NUMBER: _ClassVar[int]
    MOVE_WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    MOVE_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MOVE_ENTRIES_LEFT_FIELD_NUMBER: _ClassVar[int]
    MOVE_BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    MOVE_STALLED_FIELD_NUMBER: _ClassVar[int]
    group: int
    applied: int
    last: int
    votes: bool
    phase: str
    fetch_first: int
    fetch_next: int
    fetch_last: int
    received_bytes: int
    refused_pieces: int
    quarantined: str
    move_state: str
    move_waits_for: str
    move_entries: int
    move_entries_left: int
    move_bytes_left: int
    move_stalled: bool
    def __init__(self, group: _Optional[int] = ..., applied: _Optional[int] = ..., last: _Optional[int] = ..., votes: _Optional[bool] = ..., phase: _Optional[str] = ..., fetch_first: _Optional[int] = ..., fetch_next: _Optional[int] = ..., fetch_last: _Optional[int] = ..., received_bytes: _Optional[int] = ..., refused_pieces: _Optional[int] = ..., quarantined: _Optional[str] = ..., move_state: _Optional[str] = ..., move_waits_for: _Optional[str] = ..., move_entries: _Optional[int] = ..., move_entries_left: _Optional[int] = ..., move_bytes_left: _Optional[int] = ..., move_stalled: _Optional[bool] = ...) -> None: ...

class ReplicasReply(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[ReplicaState]
    def __init__(self, states: _Optional[_Iterable[_Union[ReplicaState, _Mapping]]] = ...) -> None: ...

class CallersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CallersReply(_message.Message):
    __slots__ = ("accepted", "refused")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, accepted: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[int]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("capacity_bytes", "used_bytes", "groups", "sizes", "garbage_bytes")
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    capacity_bytes: int
    used_bytes: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    garbage_bytes: int
    def __init__(self, capacity_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., garbage_bytes: _Optional[int] = ...) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("moves", "successors")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[AwaitedMove]
    successors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, moves: _Optional[_Iterable[_Union[AwaitedMove, _Mapping]]] = ..., successors: _Optional[_Iterable[int]] = ...) -> None: ...

class AwaitedMove(_message.Message):
    __slots__ = ("group", "index", "leaving")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    group: int
    index: int
    leaving: int
    def __init__(self, group: _Optional[int] = ..., index: _Optional[int] = ..., leaving: _Optional[int] = ...) -> None: ...

class HandOverReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[int]] = ...) -> None: ...

class AdminRequest(_message.Message):
    __slots__ = ("command",)
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    def __init__(self, command: _Optional[bytes] = ...) -> None: ...

class AdminReply(_message.Message):
    __slots__ = ("result", "failure")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    failure: Failure
    def __init__(self, result: _Optional[bytes] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("cluster_id", "nodes")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    def __init__(self, cluster_id: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ...) -> None: ...

class NodeAddress(_message.Message):
    __slots__ = ("node", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: int
    address: str
    def __init__(self, node: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...
