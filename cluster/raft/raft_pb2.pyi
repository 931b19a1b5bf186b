from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RaftMessage(_message.Message):
    __slots__ = ("group", "version", "term", "append", "append_reply", "vote_request", "vote_reply", "timeout_now", "stale_term")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPEND_REPLY_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_REPLY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    STALE_TERM_FIELD_NUMBER: _ClassVar[int]
    group: int
    version: int
    term: int
    append: AppendEntries
    append_reply: AppendReply
    vote_request: VoteRequest
    vote_reply: VoteReply
    timeout_now: TimeoutNow
    stale_term: StaleTerm
    def __init__(self, group: _Optional[int] = ..., version: _Optional[int] = ..., term: _Optional[int] = ..., append: _Optional[_Union[AppendEntries, _Mapping]] = ..., append_reply: _Optional[_Union[AppendReply, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_reply: _Optional[_Union[VoteReply, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ..., stale_term: _Optional[_Union[StaleTerm, _Mapping]] = ...) -> None: ...

class AppendEntries(_message.Message):
    __slots__ = ("sequence", "commit_index", "has_previous", "previous_index", "previous_term", "entries", "entry_terms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    HAS_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TERM_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_TERMS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    commit_index: int
    has_previous: bool
    previous_index: int
    previous_term: int
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    entry_terms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence: _Optional[int] = ..., commit_index: _Optional[int] = ..., has_previous: _Optional[bool] = ..., previous_index: _Optional[int] = ..., previous_term: _Optional[int] = ..., entries: _Optional[_Iterable[bytes]] = ..., entry_terms: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("sequence", "next_index", "success", "reset")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    next_index: int
    success: bool
    reset: bool
    def __init__(self, sequence: _Optional[int] = ..., next_index: _Optional[int] = ..., success: _Optional[bool] = ..., reset: _Optional[bool] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("last_index", "last_term", "pre", "transfer", "round")
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    PRE_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    last_index: int
    last_term: int
    pre: bool
    transfer: bool
    round: int
    def __init__(self, last_index: _Optional[int] = ..., last_term: _Optional[int] = ..., pre: _Optional[bool] = ..., transfer: _Optional[bool] = ..., round: _Optional[int] = ...) -> None: ...

class VoteReply(_message.Message):
    __slots__ = ("pre", "granted", "round")
    PRE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    pre: bool
    granted: bool
    round: int
    def __init__(self, pre: _Optional[bool] = ..., granted: _Optional[bool] = ..., round: _Optional[int] = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StaleTerm(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
