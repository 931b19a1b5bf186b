"""The words a node and its clients share on the wire, and the `$management` protocol in full.

Problem: a name spelled differently on the two sides of a socket fails silently. So every symbol, key and status that
the nodes and our own client exchange stands in this file, once; AMQP's own error conditions are in
`holdfast.amqp.errors`. This docstring is the text that other clients are written from.

Requests to `$management`
-------------------------
1. Attach a sender with target address `$management`, and a receiver either with source address `$management` in the
   same session, or with a dynamic source (the node answers with an address beginning `$reply/`). Neither is ever
   redirected.
2. Send one message per request:
   - properties: `message-id` (string, ulong, uuid or binary: it is echoed with its type); `reply-to` (string,
     optional: the source address, target address or name of one of this connection's receivers; without it the
     answer goes to the receiver on `$management` of the same session, else of the same connection);
   - application-properties: `operation` (string), `type` (string), and `name` (string, where the list says so);
   - body: amqp-value map of the arguments below (string keys), or any empty body where there are none.
3. The request is settled `accepted` as soon as it is understood as a request; its outcome is in the answer.
   A message that cannot be read as a request is settled `rejected` with the reason.
4. `group, commit` may be part of a transaction of the same connection (a transfer with its transactional state), and
   nothing else. One that fails makes the transaction roll back. Wait for the answer before the discharge.

    type, operation     name  arguments                                        body of the answer
    log, create         yes   partitions int, replicas int,                    as describe
                              retention_ms, retention_bytes int or null;
                              compression string or null; all optional
    log, list           no    -                                                logs: list of maps (name, partitions int,
                                                                               replicas int, retention_ms,
                                                                               retention_bytes, compression)
    log, describe       yes   -                                                name, retention_ms, retention_bytes,
                                                                               compression, partitions: list of maps
                                                                               (partition string, leader int or null,
                                                                               replicas list of int, ...)
    log, alter          yes   partitions (more, never fewer), retention_ms,    as describe
                              retention_bytes, compression (none, gzip or
                              zstd, of events to come), replicas (moves
                              begin): an absent key stays as it is, null
                              lifts the bound, or is none
    log, reassign       yes   partition int, to string (nodes, the preferred   log, partition string, group int,
                              leader first, as in 1,4,5),                      replicas, target list of int
                              configuration_version int (refused if the
                              replicas are those of another one; absent: any),
                              allow_same_rack boolean (absent: refused if
                              replicas share a rack without need)
    log, cancel-moves   yes   partition int (absent: all)                      asked: list of maps (log, partition
                                                                               string, group int)
    log, delete         yes   -                                                name
    log, dump           yes   partition int, after int (entries behind this    partition, first_index, last_index int,
                              index), offset string (from the entry that       entries: list of maps (index, term, kind,
                              holds it on), limit int                          bytes, ...; of a record batch its head)
    producer, list      yes   partition int (absent: all), after int (ids      producers: list of maps (partition
                        (log) above it, of one partition), limit int           string, producer_id, epoch int,
                                                                               last_sequence, last_offset int or null,
                                                                               last_active_ms, remembered int)
    producer, describe  yes   partition int, producer_id int                   one such map
                        (log)
    group, list         yes   after_group string (names behind it)             groups: list of maps (group, members int,
                        (log)                                                  active_partitions, committed_partitions
                                                                               int, lag int or null), at most 1000
    group, describe     yes   group string                                     group, lag int or null, partitions: list
                        (log)                                                  of maps (partition, member,
                                                                               committed_offset string, known, active
                                                                               boolean, epoch, claim, lag int, ...)
    group, commit       yes   group, offset string (the last event that is     group, partition, committed_offset
                        (log) done), partition int, claim int (told with the
                              answer to the attach; without it, an operator's
                              word, only while nobody reads), log string (which
                              making of it, told likewise). Sent under a
                              transaction: noted, and done when that commits,
                              if the claim is in force then
    group, reset        yes   group string, partition int (absent: all), to:   as describe
                        (log) an offset, @earliest, @latest or none
    group, delete       yes   group string                                     group
                        (log)
    transaction, list   no    after_id string (ids behind it)                  transactions: list of maps
                                                                               (transactional_id, state, producer_id,
                                                                               epoch, timeout_ms, open_ms int or null,
                                                                               partition_count, last), next string or
                                                                               null: the after_id of the next page
    transaction,        yes   -                                                one such map; partitions: list of maps
    describe            (id)                                                   (log, partition, raft_group)
    transaction, abort  yes   -                                                as describe, when it was rolled back
                        (id)
    transaction,        no    margin_ms int                                    transactions: list of maps: those that a
    hanging                                                                    partition holds open for longer than
                                                                               their timeout and the margin (log,
                                                                               partition, transactional_id string or
                                                                               null, coordinator, producer_id, epoch,
                                                                               open_ms, timeout_ms, first_offset
                                                                               string or null, prepared boolean,
                                                                               coordinator_says string)
    transaction-group,  yes   batch long, run string, query string,            already_done, known boolean,
    open              (writer) timeout_ms int, once boolean                    last_committed long or null, timeout_ms
    transaction-group,  yes   batch long, run string, winners list of string   committed, complete boolean: false while
    commit            (writer) (members)                                       some partition lacks its marker: again
    transaction-group,  yes   batch long, run string; without a run, whatever  committed boolean
    abort             (writer) run has it open, and without a batch, whichever
    transaction-group,  yes   -                                                last_committed long or null
    forget            (writer)
    transaction-group,  no    after_writer string (those behind it)            writers: list of maps (writer, run,
    list                                                                       last_committed long or null, query,
                                                                               aborted string or null, batch long or
                                                                               null, state string, open_ms, timeout_ms
                                                                               int or null, members, prepared int,
                                                                               oldest_member_ms int or null), next
    transaction-group,  yes   after_member int (those behind it, in the order  one such map; group_members: list of maps
    describe          (writer) in which they joined)                           (member, part, attempt, state string, why
                                                                               string or null, open_ms, lease_ms int,
                                                                               partitions: list of maps), next
    node, list          no    -                                                nodes: list of maps; announced: list of
                                                                               int, nodes that are still to come;
                                                                               confirmed boolean: false when nobody
                                                                               could say whether it is all there is;
                                                                               in each map refused boolean: by any
                                                                               node that is up, and let in by none;
                                                                               state string: active or leaving
    node, add           yes   -                                                node int, state string; the node may
                        (id)                                                   join from now on
    node, remove        yes   dry_run boolean                                  node int, state string, replicas int:
                        (id)                                                   that it keeps still; it begins to leave,
                                                                               unless dry_run asks only if it may
    node, cancel        yes   -                                                node int, state string; the node does
                        (id)                                                   not leave, or is not to come
    node, describe      yes   -                                                one such map; catching_up: its replicas
                        (id)                                                   that are, or null if it does not answer
    node, readmit       yes   incarnation int (absent: that of the directory   node int, incarnation string
                        (id)  with which the node was refused last)
    node, status        no    node int (refused by another node)               of the node that answers: node int,
                                                                               cluster_id string or null, version
                                                                               string, ready, draining boolean,
                                                                               problems list of string, leads, replicas
                                                                               int, behind: list of maps (partition
                                                                               string, node int, up boolean, entries
                                                                               int), data_versions: [oldest int, newest
                                                                               int], free_bytes long, quarantined: list
                                                                               of maps (group int, partition, reason
                                                                               string)
    node, drain         no    node int                                         as status, when the leaderships of the
                                                                               node have moved, or after 10 s
    node, resume        no    node int                                         as status; ends draining
    node, repair        no    node int, raft_group int                         as status; the node's replica of that
                                                                               Raft group begins anew, empty
    cluster, status     no    -                                                a map: cluster_id string (drawn when the
                                                                               cluster began) or null,
                                                                               active_version int, ...
    cluster, finalize   no    dry_run boolean, heard_s int (60)                active_version, target_version int,
                                                                               obstacles list of string, nodes: list of
                                                                               maps, each with versions: [oldest int,
                                                                               newest int] of its program
    cluster, balance    no    apply string (a digest: that plan is carried     digest string, partitions, bytes, seconds
                              out), remove int (a node that is to be empty),   int, applied boolean; moves: list of
                              successor int (the node that gets its replicas)  maps, 1,000 at most (log, partition
                                                                               string, group int, from, to, replicas
                                                                               list of int, preferred, leader, bytes
                                                                               int, why string); obstacles list of
                                                                               string; after: list of maps (node,
                                                                               replicas, bytes, preferred,
                                                                               capacity_bytes int)
    cluster, settings   no    balance string (off, repair, on),                all of them, as they are then
                              replace_after_s, disk_high, disk_low,
                              disk_target, pace_bytes_per_s int: an absent
                              key stays as it is
    cluster, moves      no    limit int (0: count them only, and ask nobody)   moving, under_way, stalled int; moves:
                                                                               list of maps, 1,000 at most, those under
                                                                               way first (log, partition
                                                                               string, group int, add, remove int or
                                                                               null, target list of int, state,
                                                                               waits_for, reason string, cancel_asked
                                                                               boolean, entries, entries_left,
                                                                               bytes_left int); unsettled: list of
                                                                               string, what else is not in order
    cluster,            no    -                                                asked: as of log, cancel-moves
    cancel-moves
    user, add           yes   roles list of string, scram_sha_256 and          name
                              scram_sha_512 string: what is kept of the
                              password, iterations:salt:stored-key:server-key
                              (RFC 5802), the last three in base64
    user, password      yes   scram_sha_256, scram_sha_512 string              name
    user, roles         yes   roles list of string                             name
    user, remove        yes   -                                                name
    user, list          no    -                                                users: list of maps (name, roles list)
    user, whoami        no    -                                                principal, mechanism string, roles list,
                                                                               open_cluster boolean, expires_ms long or
                                                                               null
    grant, add          no    principal string (a name, role:NAME, or *),      as it was given, with effect string
    grant, remove             operation, resource string (the kind),
                              resource_name string, prefix int (1: all names
                              that begin so), deny int (1)
    grant, list         no    -                                                grants: list of such maps
    rule, add           yes   claims list of string (send, listen, manage),    name, claims list, scope string
                              scope string (a log; absent: all)
    rule, rotate        yes   -                                                name; the primary key is the secondary
                                                                               one from now on, and there is a new one
    rule, remove        yes   -                                                name
    rule, keys          yes   -                                                name, claims, scope, and primary,
                                                                               secondary string: its keys
    rule, list          no    -                                                rules: list of maps (name, claims, scope)

Answers
-------
properties: `correlation-id` = the request's `message-id` (its `correlation-id` when it had no message-id), same type;
application-properties: `status-code` int, `status-description` string, and on failure `error-code` string (one of the
codes below) and `retriable` boolean; body: amqp-value map. Values are JSON-like: null, boolean, long, double, string,
list, map with string keys.

    status  error-code          meaning; retriable
    200     -                   done
    201     -                   created
    400     invalid-argument    the request is wrong: change it; no
    403     not-allowed         no
    403     not-authorized      whoever the connection is known as may not do that; no
    404     not-found           no such log, partition, producer or node; no
    409     already-exists      no
    409     not-enough-nodes    more replicas asked for than there are nodes; no
    409     group-active        the group is being read: stop its receivers first; no
    409     not-owner           the claim is not in force any more: another receiver has the partition; no
    409     fenced              a newer run has the writer, or the batch is closed: stop; no
    409     group-aborted       the batch was aborted, and why: open it anew; no
    409     not-prepared        a winner is not prepared: nothing was decided; no
    409     another-query       the batch would be taken for done, and is another query's; no
    501     not-implemented     no such type and operation; no
    503     unavailable         no leader of the metadata group now, certainly not done; yes
    504     unknown             it may or may not have been done: look before trying again; no
    500     internal-error      the node's fault; no

Rejected: encoding answers as JSON text in a data section. A map of AMQP values needs no second parser in any client.
"""

import struct
from typing import Final

# --- Event Stream Extensions: open, attach, delivery annotations
EVENT_STREAMS_CAPABILITY: Final = "AMQP_EVENT_STREAMS_V1_0"
ANONYMOUS_RELAY_CAPABILITY: Final = "ANONYMOUS-RELAY"  # senders without a target are served
LINK_REDIRECT_CAPABILITY: Final = "amqp:link:redirect"

OPEN_NODES: Final = "holdfast:nodes"  # told in the node's open, and in its close when it stops: a list of lists
# (network-host, port, hostname), the addresses of other nodes for clients of this listener, at most TOLD_NODES; where
# to turn to when this node is gone
TOLD_NODES: Final = 16  # who tells them has the address NODES_ADDRESS, too, by which it tells of changes

LINK_PARTITION: Final = "event-streams-partition"
LINK_LOG: Final = "holdfast:log"  # asked: null, tell which making of it this is; or string, this one. Told: string
LINK_CLUSTER: Final = "holdfast:cluster"  # of a control link, the same of the cluster
LINK_CONSUMER_GROUP: Final = "event-streams-consumer-group"
LINK_EPOCH: Final = "event-streams-epoch"
LINK_RESUME: Final = "holdfast:resume"  # asked by a receiver, boolean: begin at the position kept for it, if any
LINK_CLAIM: Final = "holdfast:claim"  # told to a receiver, long: what a commit is made in the name of
LINK_CONTINUED: Final = "holdfast:continued"  # told to a receiver, true: nobody else read since this link did last
LINK_POSITION: Final = "holdfast:position"  # told to a receiver, symbol: the last event that is done
LINK_UNTIL: Final = "holdfast:until"  # asked by a receiver, symbol, and repeated: the link ends before this offset

LINK_PUBLISHERS: Final = "holdfast:publishers"  # asked by a receiver, true, and repeated: delivery annotations also
# tell PRODUCER_ID, PRODUCER_EPOCH and PRODUCER_SEQUENCE of each event: long, short and int; -1 if it has no numbers

ANNOTATION_OFFSET: Final = "event-streams-offset"
ANNOTATION_TIMESTAMP: Final = "event-streams-timestamp"
ANNOTATION_SOURCE_PARTITION: Final = "event-streams-source-partition"
ANNOTATION_PARTITIONS_CHANGED: Final = "event-streams-associated-partitions-changed"
ANNOTATION_GROUP_KEY: Final = "event-streams-group-key"

OFFSET_EARLIEST: Final = "@earliest"
OFFSET_LATEST: Final = "@latest"
OFFSET_DIGITS: Final = 16  # lowercase hex, so that byte order is number order

# --- filters: symbol and numeric descriptors. A receiving link starts from the first, a described map; it chooses
# events by the second, a described string (a condition in SQL).
START_FILTER_NAME: Final = "amqp:event-streams-delivery-annotations-filter"
START_FILTER_CODE: Final = 0x200
SQL_FILTER_NAME: Final = "amqp:event-streams-sql-filter"
SQL_FILTER_CODE: Final = 0x201
EVENT_FILTER: Final = "holdfast:event-filter:string"  # SQL too; names without section are fields
ISOLATION_FILTER: Final = "holdfast:isolation-filter:string"  # which events of transactions are delivered
COMMITTED: Final = "committed"  # the default
UNCOMMITTED: Final = "uncommitted"
DELIVERY_ANNOTATIONS_FILTER: Final = frozenset({START_FILTER_NAME, START_FILTER_CODE})
SQL_FILTERS: Final = frozenset({SQL_FILTER_NAME, SQL_FILTER_CODE, "amqp:sql-filter", 0x120})
FILTER_EXPRESSIONS: Final = frozenset(
    {0x100, 0x101, 0x102, 0x110, 0x111, 0x170, 0x171, 0x172, 0x173, 0x174, 0x178}
    | {f"amqp:{kind}-filter" for kind in ("all", "any", "not", "true", "false", "header", "delivery-annotations")}
    | {f"amqp:{kind}-filter" for kind in ("message-annotations", "properties", "application-properties", "footer")}
)  # of AMQP Filter Expressions; what they say can be said in SQL
SELECTOR_FILTERS: Final = frozenset({"apache.org:selector-filter:string", 0x0000468C00000004, 0x000000137000000A})

# --- idempotent publishing: attach and message annotations of a sender that is bound to a partition
IDEMPOTENT_CAPABILITY: Final = "com.microsoft:idempotent-producer"  # desired by the attach; implied by the names below
PRODUCER_ID: Final = "com.microsoft:producer-id"  # long
PRODUCER_EPOCH: Final = "com.microsoft:producer-epoch"  # short; the "owner level" of clients
PRODUCER_SEQUENCE: Final = "com.microsoft:producer-sequence-number"  # int; of an attach: the last one, not the next
PRODUCER_NAMES: Final = (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE)
PRODUCER_RENEWS: Final = "holdfast:renews"  # boolean, of the attach: it goes on by itself when it is forgotten
PRODUCER_PREFIX: Final = b"com.microsoft:producer-"
RECORD_BATCHES: Final = "holdfast:record-batches"  # attach property of a link that is bound to a partition, both ways:
# uint, the highest version of record batches (`holdfast/records/record_batch.py`) that the peer knows; in the answer,
# the version that is used. Then each transfer of a producer's link is one batch, each of a reader's link one or more,
# back to back; and credit counts transfers.

MOST_EVENTS_UNANSWERED: Final = 16_384  # of an idempotent producer, on a link of record batches: half of those that a
# partition remembers for certain, so that all are recognised when they come again

PRODUCER_STOLEN: Final = "com.microsoft:producer-epoch-stolen"
OUT_OF_ORDER: Final = "com.microsoft:out-of-order-sequence"
ARGUMENT_ERROR: Final = "com.microsoft:argument-error"
ARGUMENT_OUT_OF_RANGE: Final = "com.microsoft:argument-out-of-range"
INVALID_OFFSET: Final = "com.microsoft:georeplication:invalid-offset"

# --- the dialect of Event Hubs (`node/listener/event_hubs/`)
TOKEN_ADDRESS: Final = "$cbs"
HUB_EPOCH: Final = "com.microsoft:epoch"  # of a receiver's attach, long; an equal one takes the partition, too
HUB_RECEIVER_NAME: Final = "com.microsoft:receiver-name"  # of a receiver's attach, string
HUB_RUNTIME_METRIC: Final = "com.microsoft:enable-receiver-runtime-metric"  # desired by the attach
HUB_GEOREPLICATION: Final = "com.microsoft:georeplication"  # desired by attaches, never offered
HUB_SEQUENCE: Final = "x-opt-sequence-number"  # message annotation, long: the offset
HUB_OFFSET: Final = "x-opt-offset"  # message annotation, string: the offset in decimal digits
HUB_ENQUEUED: Final = "x-opt-enqueued-time"  # message annotation, timestamp
HUB_PARTITION_KEY: Final = "x-opt-partition-key"  # message annotation, string: the group key
HUB_LAST_EVENT: Final = (
    "last_enqueued_sequence_number", "last_enqueued_offset", "last_enqueued_time_utc",
    "runtime_info_retrieval_time_utc",
)  # fmt: skip
"""Delivery annotations for whoever desires `HUB_RUNTIME_METRIC`: long, string, and two timestamps."""

# --- transactions: properties of the attach to the coordinator
TRANSACTIONAL_ID: Final = "holdfast:transactional-id"  # string; who attaches with it last has it, and nobody else
TRANSACTION_TIMEOUT: Final = "holdfast:transaction-timeout"  # uint, milliseconds; the answer tells what is in force
TRANSACTION_HOLDER: Final = "holdfast:transaction-holder"  # string, both ways: a name drawn for one attach, the same in
# all its tries, so that a try whose answer got lost is no other holder; the node draws one if it is absent
TRANSACTION_SUCCEEDS: Final = "holdfast:transaction-succeeds"  # string; the holder that comes back as another one. It
# is let in only if nobody else has attached with the id since, else refused: amqp:link:stolen
DISCHARGE_ANSWER: Final = "holdfast:discharge-answer"  # string, one of DISCHARGE_ANSWERS, and told in the answer
ANSWERED_WHEN_VISIBLE: Final = "visible"  # to committed readers: unless something else is said
ANSWERED_WHEN_DECIDED: Final = "decided"  # for good, by a majority; committed readers see it a moment later
DISCHARGE_ANSWERS: Final = (ANSWERED_WHEN_VISIBLE, ANSWERED_WHEN_DECIDED)
LAST_TRANSACTION: Final = "holdfast:last-transaction"  # of the answer: a map that says how the last one of the id ended
# (producer-id long, epoch short, committed boolean, how string); with PRODUCER_ID and PRODUCER_EPOCH, of the next one

# Of a member of a transaction group, whose transaction is prepared by a discharge and decided by its group:
GROUP_WRITER: Final = "holdfast:group-writer"  # string; who writes the batch
GROUP_BATCH: Final = "holdfast:group-batch"  # long; which
GROUP_RUN: Final = "holdfast:group-run"  # string; the start of the writer that has opened it
GROUP_PART: Final = "holdfast:group-part"  # string; what part of the batch: at most one member of each is committed
GROUP_ATTEMPT: Final = "holdfast:group-attempt"  # string or absent; for people
GROUP_LEASE: Final = "holdfast:group-lease"  # uint, milliseconds, or absent; the answer tells what is in force
GROUP_MEMBER: Final = "holdfast:group-member"  # string, of the answer: the member, for whoever commits the group

TRANSACTION_NAME: Final = struct.Struct(">BQHI")
TRANSACTION_NAME_VERSION: Final = 1
"""A transaction's id is these 15 bytes: the version, its producer id and epoch, by which `holdfast:last-transaction`
names it, too, and four bytes that nobody can guess."""

# --- an outcome of ours: accepted, and where. Used on links whose source lists it among its outcomes, and on no other.
MODIFIED: Final = "amqp:modified:list"  # who lists it among its source's outcomes is told of unknown outcomes by it
STORED: Final = "holdfast:stored:list"
STORED_CODE: Final = 0x484F4C44_00000001  # its domain spells HOLD; no domain of that number is assigned
# Fields: base-offset ulong, count uint, partition symbol. Of `count` deliveries that follow each other on the link from
# this one on, the n-th stands at base-offset + n. Those behind the first are answered `accepted`, as ever.
OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list", STORED)
"""What our own client lists among the outcomes of its source."""

# --- addresses
INFO_SUFFIX: Final = "/$info"
MANAGEMENT_ADDRESS: Final = "$management"
NODES_ADDRESS: Final = "$nodes"  # the value of OPEN_NODES, and again after each change
REPLY_PREFIX: Final = "$reply/"

# --- `$info` body
INFO_PARTITIONS: Final = "partitions"
INFO_PARTITION: Final = "partition"
INFO_EARLIEST_OFFSET: Final = "earliest-offset"
INFO_LATEST_OFFSET: Final = "latest-offset"
INFO_LATEST_TIMESTAMP: Final = "latest-timestamp"  # of the event at latest-offset; null when nothing is stored
INFO_AVAILABLE: Final = "available"  # false: the leader could not be asked, and the offsets are unknown, not empty
INFO_LEADER: Final = "leader"
INFO_REPLICAS: Final = "replicas"
INFO_EVENTS: Final = "events"
INFO_BYTES: Final = "bytes"
INFO_NEXT_OFFSET: Final = "next-offset"
INFO_STABLE_OFFSET: Final = "stable-offset"  # committed readers get what lies below it; next-offset with nothing open
INFO_OPEN_TRANSACTIONS: Final = "open-transactions"
INFO_ABORTED_TRANSACTIONS: Final = "aborted-transactions"  # with events that are stored still, and never delivered
INFO_LOG: Final = "log"

# --- `$management`
OPERATION: Final = "operation"
TYPE: Final = "type"
NAME: Final = "name"
STATUS_CODE: Final = "status-code"
STATUS_DESCRIPTION: Final = "status-description"
ERROR_CODE: Final = "error-code"
RETRIABLE: Final = "retriable"

_LOG_SETTINGS: Final = frozenset({"partitions", "retention_ms", "retention_bytes", "compression"})

_PASSWORD: Final = frozenset({"scram_sha_256", "scram_sha_512"})
_GRANT: Final = frozenset({"principal", "operation", "resource", "resource_name", "prefix", "deny"})

# (type, operation) -> (needs a name, argument keys, status of success).
# What reaches `Broker.admin` is "<type>.<operation>" with the arguments, and `name` among them.
REQUESTS: Final[dict[tuple[str, str], tuple[bool, frozenset[str], int]]] = {
    ("log", "create"): (True, _LOG_SETTINGS | {"replicas"}, 201),
    ("log", "list"): (False, frozenset(), 200),
    ("log", "describe"): (True, frozenset(), 200),
    ("log", "alter"): (True, _LOG_SETTINGS | {"replicas"}, 200),
    ("log", "reassign"): (True, frozenset({"partition", "to", "configuration_version", "allow_same_rack"}), 200),
    ("log", "cancel-moves"): (True, frozenset({"partition"}), 200),
    ("log", "delete"): (True, frozenset(), 200),
    ("log", "dump"): (True, frozenset({"partition", "after", "offset", "limit"}), 200),
    ("producer", "list"): (True, frozenset({"partition", "after", "limit"}), 200),
    ("producer", "describe"): (True, frozenset({"partition", "producer_id"}), 200),
    ("group", "list"): (True, frozenset({"after_group"}), 200),
    ("group", "describe"): (True, frozenset({"group"}), 200),
    ("group", "commit"): (True, frozenset({"group", "partition", "offset", "claim", "log"}), 200),
    ("group", "reset"): (True, frozenset({"group", "partition", "to"}), 200),
    ("group", "delete"): (True, frozenset({"group"}), 200),
    ("transaction", "list"): (False, frozenset({"after_id"}), 200),
    ("transaction", "describe"): (True, frozenset(), 200),
    ("transaction", "abort"): (True, frozenset(), 200),
    ("transaction", "hanging"): (False, frozenset({"margin_ms"}), 200),
    ("transaction-group", "open"): (True, frozenset({"batch", "run", "query", "timeout_ms", "once"}), 200),
    ("transaction-group", "commit"): (True, frozenset({"batch", "run", "winners"}), 200),
    ("transaction-group", "abort"): (True, frozenset({"batch", "run"}), 200),
    ("transaction-group", "forget"): (True, frozenset(), 200),
    ("transaction-group", "list"): (False, frozenset({"after_writer"}), 200),
    ("transaction-group", "describe"): (True, frozenset({"after_member"}), 200),
    ("node", "list"): (False, frozenset(), 200),
    ("node", "status"): (False, frozenset({"node"}), 200),
    ("node", "drain"): (False, frozenset({"node"}), 200),
    ("node", "resume"): (False, frozenset({"node"}), 200),
    ("node", "repair"): (False, frozenset({"node", "raft_group"}), 200),
    ("node", "describe"): (True, frozenset(), 200),
    ("node", "add"): (True, frozenset(), 200),
    ("node", "remove"): (True, frozenset({"dry_run"}), 200),
    ("node", "cancel"): (True, frozenset(), 200),
    ("node", "readmit"): (True, frozenset({"incarnation"}), 200),
    ("cluster", "status"): (False, frozenset(), 200),
    ("cluster", "balance"): (False, frozenset({"apply", "remove", "successor"}), 200),
    ("cluster", "settings"): (
        False,
        frozenset({"balance", "replace_after_s", "disk_high", "disk_low", "disk_target", "pace_bytes_per_s"}),
        200,
    ),
    ("cluster", "finalize"): (False, frozenset({"dry_run", "heard_s"}), 200),
    ("cluster", "moves"): (False, frozenset({"limit"}), 200),
    ("cluster", "cancel-moves"): (False, frozenset(), 200),
    ("user", "add"): (True, _PASSWORD | {"roles"}, 201),
    ("user", "password"): (True, _PASSWORD, 200),
    ("user", "roles"): (True, frozenset({"roles"}), 200),
    ("user", "remove"): (True, frozenset(), 200),
    ("user", "list"): (False, frozenset(), 200),
    ("user", "whoami"): (False, frozenset(), 200),
    ("grant", "add"): (False, _GRANT, 201),
    ("grant", "remove"): (False, _GRANT, 200),
    ("grant", "list"): (False, frozenset(), 200),
    ("rule", "add"): (True, frozenset({"claims", "scope"}), 201),
    ("rule", "rotate"): (True, frozenset(), 200),
    ("rule", "remove"): (True, frozenset(), 200),
    ("rule", "keys"): (True, frozenset(), 200),
    ("rule", "list"): (False, frozenset(), 200),
}

TEXT_ARGUMENTS: Final = frozenset(
    {"group", "after_group", "after_id", "after_writer", "offset", "log", "to", "compression", "run", "query"}
    | {"apply", "balance"}
    | {"scram_sha_256", "scram_sha_512", "principal", "operation", "resource", "resource_name", "scope"}
)
LIST_ARGUMENTS: Final = frozenset({"winners", "roles", "claims"})
"""Lists of strings."""
FLAG_ARGUMENTS: Final = frozenset({"once", "dry_run", "allow_same_rack"})
"""Booleans. All others are integers."""

# error-code -> (status, retriable)
STATUS_OF_ERROR: Final[dict[str, tuple[int, bool]]] = {
    "invalid-argument": (400, False),
    "not-allowed": (403, False),
    "not-authorized": (403, False),
    "not-found": (404, False),
    "already-exists": (409, False),
    "not-enough-nodes": (409, False),
    "group-active": (409, False),
    "not-owner": (409, False),
    "fenced": (409, False),
    "group-aborted": (409, False),
    "not-prepared": (409, False),
    "another-query": (409, False),
    "not-implemented": (501, False),
    "unavailable": (503, True),
    "unknown": (504, False),
    "internal-error": (500, False),
}
