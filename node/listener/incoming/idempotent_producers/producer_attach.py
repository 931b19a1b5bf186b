"""The link properties of an idempotent producer: its request in the attach, and the answer.

Problem: three link properties, each of which may be stated, left open (null) or malformed, and a capability that stands
for all three when nothing is known yet.
Rule never broken: a peer that asks for idempotent publishing gets it on all terms, or a refusal that names the term; no
peer that believes otherwise is served as a plain sender. And nothing is granted that is not replicated.
Rejected: answering every sender on a partition with the three properties. Each attach would be an entry in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp import ReceiverLink, short, timestamp
from holdfast.amqp.encoding.codec import int32
from node.listener import errors
from node.listener.errors import Refused
from node.partition.api import ProducerOpened, ProducerRequest
from node.partition.idempotence.producer_state import MAX_EPOCH, MAX_PRODUCER_ID, SEQUENCES

HIGHEST = {
    protocol.PRODUCER_ID: MAX_PRODUCER_ID,
    protocol.PRODUCER_EPOCH: MAX_EPOCH,
    protocol.PRODUCER_SEQUENCE: SEQUENCES - 1,
}


def producer_request_of(link: ReceiverLink) -> ProducerRequest | None:
    """Read the producer request of an attach. None: a plain sender. Raises Refused."""
    properties = link.remote_properties
    stated = [name for name in protocol.PRODUCER_NAMES if name in properties]
    if not stated:
        asked = protocol.IDEMPOTENT_CAPABILITY in link.remote_desired_capabilities
        return ProducerRequest(renews=_renews(properties)) if asked else None
    if len(stated) < len(protocol.PRODUCER_NAMES):
        missing = ", ".join(name for name in protocol.PRODUCER_NAMES if name not in properties)
        raise Refused(errors.numbers_wrong(f"the attach states {', '.join(stated)} but not {missing} (null: unknown)"))
    producer_id, epoch, last_sequence = (
        None if properties[name] is None else whole_number(name, properties[name]) for name in protocol.PRODUCER_NAMES
    )
    return ProducerRequest(producer_id, epoch, last_sequence, _renews(properties))


def _renews(properties: Mapping[str, Any]) -> bool:
    renews = properties.get(protocol.PRODUCER_RENEWS, False)
    if not isinstance(renews, bool):
        raise Refused(
            errors.numbers_wrong(f"{protocol.PRODUCER_RENEWS} must be a boolean, not {type(renews).__name__}")
        )
    return renews


def whole_number(name: str, value: Any) -> int:
    """Check one number of a producer, from an attach or a message. Any integer type will do. Raises Refused."""
    if not isinstance(value, int) or isinstance(value, bool | timestamp):
        raise Refused(errors.numbers_wrong(f"{name} must be an integer, not a {type(value).__name__}"))
    if not 0 <= value <= HIGHEST[name]:
        raise Refused(errors.numbers_out_of_range(name, int(value), HIGHEST[name]))
    return int(value)


def answer(opened: ProducerOpened) -> Mapping[str, Any]:
    """The link properties that tell the producer its id, epoch and last sequence number."""
    return {
        protocol.PRODUCER_ID: opened.producer_id,
        protocol.PRODUCER_EPOCH: short(opened.epoch),
        protocol.PRODUCER_SEQUENCE: int32(opened.last_sequence),
    }
