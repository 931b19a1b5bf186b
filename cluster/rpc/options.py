"""Limits and channel options of the network between nodes, each with its reason.

Measured here of gRPC calls (2 cores, CPython 3.11, uvloop, loopback; CPU of one process, both directions of an exchange
of an append and its reply): 150 us of it is the exchange itself, whatever its size, when each waits for the one before;
eight in flight share frames and cost 30 us each at 1 KiB, 60 at 64 KiB, 200 at 256 KiB, 1.0 to 1.4 ms at 1 MiB. Large
HTTP/2 frames and windows gain a third at 256 KiB; read-chunk options and `optimization_target` changed nothing. A MiB
costs its sender 0.28 ms and its receiver 0.66 ms; on a stream's own connection 0.16 and 0.09. glibc returns buffers of
1 MiB to the system after each use: with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ raised the sender's 1 MiB
costs a third less.
"""

from __future__ import annotations

MIB = 1 << 20

MAX_MESSAGE_BYTES = 64 * MIB
"""One Frame, all entries beside one, and the largest Raft entry (a client message of 16 MiB, its batch header) with
room to spare."""

MAX_HELLO_BYTES = 64 * 1024
"""The largest message of a stream whose dialler is not let in yet."""

UNREAD_BYTES = 8 * MIB
"""Unread bytes of a stream: beyond it the sender waits."""

WRITE_BUFFER_BYTES = MIB
"""Unsent bytes of a stream, beyond what the system has taken: beyond it a writer waits."""

HEARD_PERIOD_S = 0.1
"""A stream's listener says so often that something came, if anything did."""

NO_ANSWER_S = 1.2
"""A stream whose listener said nothing for so long leads nowhere. A node that nobody hears knows it by nothing else
(`raft_transport/minority_detection.py`), and its clients wait as long."""

MAX_CONNECTIONS = 5_000
"""Limit for the whole port, of nodes and of strangers: each may hold some hundred KiB."""

FRAME_TARGET_BYTES = 4 * MIB
"""A frame is cut here (it holds at least one message). Larger ones gain nothing and keep heartbeats waiting."""

BACKLOG_BYTES = 64 * MIB
"""Per peer, waiting for the frame before to leave. Raft stops far below it (`raft/replication/inflight_limit.py`), so a
peer that lets so much wait is as good as down: the stream is dropped, and Raft sends again what is needed."""

HEARTBEAT_S = 0.25
"""A stream that carried nothing for so long carries an empty frame."""

SILENCE_S = 1.2
"""A peer not heard for so long is down: five heartbeats, and with the check's own period under 1.5 s."""

OUT_OF_TOUCH_S = 0.8
"""A peer that was not heard for so long, three heartbeats, may be dead, or at work without us. A leader waits as long
for the answers of a majority."""

CUT_OFF_S = 0.2
"""A node that was out of touch with a majority for so long more sends its clients elsewhere: a second in all. What is
shorter (an election, a link that flaps) they wait out where they are."""

FIRST_TOUCH_S = 3.0
"""Time that a node allows for the first contact after its start, on top: its peers may be starting, too."""

BESIDE_S = 10.0
"""A process that speaks on so long after another one of its node has come is no leftover in some buffer: there are two.
Until then the newcomer waits; a restarted one waits for `SILENCE_S` at most."""

TICK_S = 0.1
"""Period of the liveness check. A tick that comes late (this process stood still) moves all deadlines by as much."""

HINT_PERIOD_S = 1.0
"""Period of all leader hints: a node that lost one knows better after a second."""

MAX_HINTS = 200_000
"""Groups remembered: ten thousand logs of twenty partitions; about 30 MB. Beyond it new groups are not remembered."""

HELLO_TIMEOUT_S = 2.0
"""Time from the start of a stream to its Hello, and from Hello to welcome. Strangers are not waited for."""

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 0.5
"""A restarted peer is found again within half a second; attempts against a dead port cost 1 ms each."""

KEEPALIVE_TIME_MS = 300
KEEPALIVE_TIMEOUT_MS = 700
"""A black hole is noticed on a connection with calls after both: 1.0 s. One without calls says nothing; in a cluster at
rest that was a tenth of all work."""

IDLE_CONNECTION_MS = 600_000
"""One without calls for so long is closed by the node that it leads to: its other end may be gone without a word."""

APPEND_UNANSWERED_BYTES = 32 * MIB
"""Per partition and gateway. Beyond it the client side answers `overloaded` and the server side stops reading."""

READ_WINDOW_BYTES = 4 * MIB
"""Per remote reader: bandwidth of 4 MiB per round trip is enough inside a data centre; it is the memory it may hold."""

READ_REPLY_BYTES = MIB
READ_REPLY_EVENTS = 4096
"""One read reply; with a window of four the next is on its way while one is consumed."""

EVENT_OVERHEAD_BYTES = 64
"""Charged per event beside its length: a bytes object and its slot. A window of tiny events stays bounded too. A batch
that stays unopened is one such object."""

MAX_REPLIES_PER_FRAME = 4096
"""Append answers in one message, about 40 bytes each."""

STREAM_IDLE_S = 60.0
"""An append stream unused for so long is closed; the next append opens it again."""

INFO_TIMEOUT_S = 2.0

FETCH_TIMEOUT_S = 5.0
"""A piece of a snapshot. A caller asks for less when that was not enough."""

OPEN_PRODUCER_TIMEOUT_S = 4.0
"""A round of replication, or until a leader that lost its office says that it does not know."""

GROUP_TIMEOUT_S = 4.0
"""The same, of a question on behalf of a consumer group."""

MAX_HAND_OVER_BYTES = 64 * 1024
"""One question about leaderships that are to be handed over: a thousand groups take half of it."""

MAX_PRODUCERS_PER_REPLY = 10_000
"""Producers in one reply at most: all that a partition knows; some 40 bytes each."""

MAX_CALLS = 20_000
"""Open calls on the whole port: some thousand readers per gateway; a stranger cannot take more."""

STOP_GRACE_S = 0.2
"""Streams of peers never end by themselves; what they carry is repeated by Raft or answered `unknown`."""

Options = list[tuple[str, int]]


def _common() -> Options:
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.http2.max_frame_size", 4 * MIB),
        ("grpc.http2.lookahead_bytes", 8 * MIB),  # flow control window: fixed, so
        ("grpc.http2.bdp_probe", 0),  # there is nothing to estimate
        ("grpc.http2.write_buffer_size", MIB),  # pings and heartbeats get in between
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # 60 s else, and it is what counts for keepalive pings
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 100),
    ]


def server_options() -> Options:
    return _common() + [
        ("grpc.max_connection_idle_ms", IDLE_CONNECTION_MS),
        ("grpc.http2.max_ping_strikes", 0),  # our own keepalive is no abuse
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
        ("grpc.server_handshake_timeout_ms", 5000),  # half-open connections and strangers
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.enable_http_proxy", 0),
    ]


def channel_options() -> Options:
    return _common() + [
        ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection, with no inherited backoff
        ("grpc.enable_retries", 0),  # what is sent twice is our decision
        ("grpc.enable_http_proxy", 0),  # no environment variable comes between nodes
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),  # in fact the time a connection attempt may take
        ("grpc.max_reconnect_backoff_ms", int(BACKOFF_MAX_S * 1000)),
    ]
