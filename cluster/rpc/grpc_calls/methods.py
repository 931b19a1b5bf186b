"""The calls of `proto/cluster/rpc/rpc.proto`, by name, with their codecs.

Written out instead of generated: bulk messages are encoded by `frame_writer.py` and pass through gRPC as bytes, which
generated stubs cannot do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]

from cluster.raft import FetchReply, FetchRequest
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.call_validation import parser

PEERS = "cluster.rpc.Peers"
PARTITION = "cluster.rpc.Partition"
ADMIN = "cluster.rpc.Admin"

APPEND = f"/{PARTITION}/Append"
READ = f"/{PARTITION}/Read"
INFO = f"/{PARTITION}/Info"
OPEN_PRODUCER = f"/{PARTITION}/OpenProducer"
PRODUCERS = f"/{PARTITION}/Producers"
GROUP = f"/{PARTITION}/Group"
EXECUTE = f"/{ADMIN}/Execute"
CONFIRM = f"/{ADMIN}/Confirm"
REPLICAS = f"/{ADMIN}/Replicas"
CALLERS = f"/{ADMIN}/Callers"
JOIN = f"/{ADMIN}/Join"
REPORT = f"/{ADMIN}/Report"
HAND_OVER = f"/{ADMIN}/HandOver"
FETCH = f"/{PEERS}/Fetch"

__all__ = [
    "EOF",
    "append_call",
    "callers_call",
    "confirm_call",
    "execute_call",
    "fetch_call",
    "group_call",
    "hand_over_call",
    "handlers",
    "info_call",
    "join_call",
    "open_producer_call",
    "producers_call",
    "read_call",
    "replicas_call",
    "report_call",
]

Handler = Callable[[Any, Any], Awaitable[Any]]


def append_call(channel: Any) -> Any:
    return channel.stream_stream(APPEND, response_deserializer=parser(pb.AppendReplies))


def read_call(channel: Any) -> Any:
    return channel.stream_stream(
        READ,
        request_serializer=pb.ReadRequest.SerializeToString,
        response_deserializer=parser(pb.ReadReply),
    )


def info_call(channel: Any) -> Any:
    return channel.unary_unary(
        INFO,
        request_serializer=pb.InfoRequest.SerializeToString,
        response_deserializer=parser(pb.InfoReply),
    )


def open_producer_call(channel: Any) -> Any:
    return channel.unary_unary(
        OPEN_PRODUCER,
        request_serializer=pb.OpenProducerRequest.SerializeToString,
        response_deserializer=parser(pb.OpenProducerReply),
    )


def producers_call(channel: Any) -> Any:
    return channel.unary_unary(
        PRODUCERS,
        request_serializer=pb.ProducersRequest.SerializeToString,
        response_deserializer=parser(pb.ProducersReply),
    )


def group_call(channel: Any) -> Any:
    return channel.unary_unary(
        GROUP,
        request_serializer=pb.GroupRequest.SerializeToString,
        response_deserializer=parser(pb.GroupReply),
    )


def execute_call(channel: Any) -> Any:
    return channel.unary_unary(
        EXECUTE,
        request_serializer=pb.AdminRequest.SerializeToString,
        response_deserializer=parser(pb.AdminReply),
    )


def confirm_call(channel: Any) -> Any:
    return channel.unary_unary(
        CONFIRM,
        request_serializer=pb.ConfirmRequest.SerializeToString,
        response_deserializer=parser(pb.ConfirmReply),
    )


def replicas_call(channel: Any) -> Any:
    return channel.unary_unary(
        REPLICAS,
        request_serializer=pb.ReplicasRequest.SerializeToString,
        response_deserializer=parser(pb.ReplicasReply),
    )


def callers_call(channel: Any) -> Any:
    return channel.unary_unary(
        CALLERS,
        request_serializer=pb.CallersRequest.SerializeToString,
        response_deserializer=parser(pb.CallersReply),
    )


def join_call(channel: Any) -> Any:
    return channel.unary_unary(
        JOIN,
        request_serializer=pb.JoinRequest.SerializeToString,
        response_deserializer=parser(pb.JoinReply),
    )


def report_call(channel: Any) -> Any:
    return channel.unary_unary(
        REPORT,
        request_serializer=pb.ReportRequest.SerializeToString,
        response_deserializer=parser(pb.ReportReply),
    )


def hand_over_call(channel: Any) -> Any:
    return channel.unary_unary(
        HAND_OVER,
        request_serializer=pb.HandOverRequest.SerializeToString,
        response_deserializer=parser(pb.HandOverReply),
    )


def fetch_call(channel: Any) -> Any:
    return channel.unary_unary(
        FETCH,
        request_serializer=FetchRequest.SerializeToString,
        response_deserializer=FetchReply.FromString,
    )


def handlers(
    *,
    link: Handler,
    append: Handler,
    read: Handler,
    info: Handler,
    open_producer: Handler,
    producers: Handler,
    group: Handler,
    execute: Handler,
    confirm: Handler,
    replicas: Handler,
    callers: Handler,
    join: Handler,
    report: Handler,
    hand_over: Handler,
    fetch: Handler,
) -> tuple[Any, ...]:
    """Handlers for `server.add_generic_rpc_handlers`. Requests arrive as bytes: a caller is checked before they are
    parsed, and a request that cannot be parsed is answered, where gRPC would log a traceback for each."""
    return (
        grpc.method_handlers_generic_handler(
            PEERS,
            {
                "Link": grpc.stream_unary_rpc_method_handler(link),
                "Fetch": grpc.unary_unary_rpc_method_handler(fetch, response_serializer=FetchReply.SerializeToString),
            },
        ),
        grpc.method_handlers_generic_handler(
            PARTITION,
            {
                "Append": grpc.stream_stream_rpc_method_handler(append),
                "Read": grpc.stream_stream_rpc_method_handler(read),
                "Info": grpc.unary_unary_rpc_method_handler(info, response_serializer=pb.InfoReply.SerializeToString),
                "OpenProducer": grpc.unary_unary_rpc_method_handler(
                    open_producer, response_serializer=pb.OpenProducerReply.SerializeToString
                ),
                "Producers": grpc.unary_unary_rpc_method_handler(
                    producers, response_serializer=pb.ProducersReply.SerializeToString
                ),
                "Group": grpc.unary_unary_rpc_method_handler(
                    group, response_serializer=pb.GroupReply.SerializeToString
                ),
            },
        ),
        grpc.method_handlers_generic_handler(
            ADMIN,
            {
                "Execute": grpc.unary_unary_rpc_method_handler(
                    execute, response_serializer=pb.AdminReply.SerializeToString
                ),
                "Confirm": grpc.unary_unary_rpc_method_handler(
                    confirm, response_serializer=pb.ConfirmReply.SerializeToString
                ),
                "Replicas": grpc.unary_unary_rpc_method_handler(
                    replicas, response_serializer=pb.ReplicasReply.SerializeToString
                ),
                "Callers": grpc.unary_unary_rpc_method_handler(
                    callers, response_serializer=pb.CallersReply.SerializeToString
                ),
                "Join": grpc.unary_unary_rpc_method_handler(join, response_serializer=pb.JoinReply.SerializeToString),
                "Report": grpc.unary_unary_rpc_method_handler(
                    report, response_serializer=pb.ReportReply.SerializeToString
                ),
                "HandOver": grpc.unary_unary_rpc_method_handler(
                    hand_over, response_serializer=pb.HandOverReply.SerializeToString
                ),
            },
        ),
    )
