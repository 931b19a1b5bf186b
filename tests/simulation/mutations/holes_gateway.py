"""Mutations of what gateways and leaders keep to between them. What they are for: catalogue.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from cluster.rpc.grpc_calls import append_client, append_server, call_handlers
from cluster.rpc.grpc_calls.append_client import AppendStream, refusal_behind
from node.listener.incoming import append_queue
from node.listener.incoming.append_queue import AppendQueue


@contextlib.contextmanager
def lost_connections_appended_nothing() -> Iterator[None]:
    """What was handed to a stream that broke is submitted again."""
    finish = AppendStream._finish

    def certain(stream: AppendStream, reason: str) -> None:
        stream._handed_over = 0
        finish(stream, reason)

    with mock.patch.object(AppendStream, "_finish", certain):
        yield


def _only_behind_the_unknown(failure: Any, node: int) -> Any:
    return refusal_behind(failure, node) if failure.kind == "unknown" else None


@contextlib.contextmanager
def leaders_take_what_follows_a_refusal() -> Iterator[None]:
    """A leader that refused a request for the moment appends those behind it."""
    with mock.patch.object(append_server, "refusal_behind", _only_behind_the_unknown):
        yield


@contextlib.contextmanager
def streams_take_more_after_a_refusal() -> Iterator[None]:
    """A gateway goes on with a stream on which something was refused for the moment."""
    with mock.patch.object(append_client, "refusal_behind", _only_behind_the_unknown):
        yield


@contextlib.contextmanager
def queues_do_not_wait_for_what_is_under_way() -> Iterator[None]:
    """A link submits to a new leader while the old one owes it answers."""
    answered = AppendQueue._take_answer

    def at_once(queue: AppendQueue) -> None:
        if queue._unanswered and queue._holds_back and (leader := queue._current_leader()) is not None:
            queue._leader = leader
            for batch in queue._take_waiting():
                queue.submit(batch)

    def impatient(queue: AppendQueue, batch: Any, outcome: Any) -> None:
        answered(queue, batch, outcome)
        if queue._unanswered and queue._holds_back:
            asyncio.get_running_loop().call_later(append_queue.RETRY_DELAY_S, at_once, queue)

    with mock.patch.object(AppendQueue, "_take_answer", impatient):
        yield


@contextlib.contextmanager
def queues_repeat_the_unknown() -> Iterator[None]:
    """A link submits again what may have been appended."""
    answered = AppendQueue._take_answer

    def again(queue: AppendQueue, batch: Any, outcome: Any) -> None:
        if getattr(outcome, "kind", "") == "unknown":
            outcome = append_queue.Failed("not_leader", True, outcome.detail)
        answered(queue, batch, outcome)

    with mock.patch.object(AppendQueue, "_take_answer", again):
        yield


@contextlib.contextmanager
def queues_forget_the_order() -> Iterator[None]:
    """What was refused is submitted again in the order of its refusals, behind what came later."""

    take_waiting = AppendQueue._take_waiting

    def as_it_came(queue: AppendQueue) -> list[Any]:
        came_later = len(queue._behind)
        waiting = take_waiting(queue)
        return [*waiting[len(waiting) - came_later :], *waiting[: len(waiting) - came_later]]

    with mock.patch.object(AppendQueue, "_take_waiting", as_it_came):
        yield


@contextlib.contextmanager
def readers_begin_one_later() -> Iterator[None]:
    """A reader that goes on at another node passes over an event."""
    start = call_handlers.decode_start

    def later(request: Any, types: Any) -> Any:
        found = start(request, types)
        return types.After(found.offset + 1) if isinstance(found, types.After) else found

    with mock.patch.object(call_handlers, "decode_start", later):
        yield
