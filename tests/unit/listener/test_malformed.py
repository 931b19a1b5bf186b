"""Every malformed attach property, filter, terminus and annotation has one defined answer, and its session lives on.

`HOLDFAST_EXAMPLES` multiplies the random attaches (`make soak`); a failure shows the seed, `HOLDFAST_SEED` replays it.
"""

from __future__ import annotations

import os
import random
import string
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import UNDESCRIBED, Data

from holdfast.amqp import Array, Described, float32, int32, symbol, timestamp, ubyte, uint, ulong
from node.listener.errors import Refused
from node.listener.outgoing.source_filters import Selection, select
from tests.unit.listener.support.single import SingleNode
from tests.unit.listener.support.speaking import ScriptedSpeaker, section

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "1"))

INVALID, NOT_FOUND, NOT_IMPLEMENTED, NOT_ALLOWED = (
    f"amqp:{name}" for name in ("invalid-field", "not-found", "not-implemented", "not-allowed")
)
ARGUMENT = "com.microsoft:argument-error"
CONDITIONS = {INVALID, NOT_FOUND, NOT_IMPLEMENTED, NOT_ALLOWED, "amqp:decode-error"} | {
    "amqp:resource-locked", "amqp:link:stolen", ARGUMENT, "com.microsoft:argument-out-of-range",
}  # fmt: skip
"""All that a malformed attach may be answered with."""
TAKEN = "amqp:link:detach-forced"
"""What a good one is answered with, if it has a group and all partitions of the log have a receiver of it."""

PARTITION, GROUP, EPOCH = (f"event-streams-{name}" for name in ("partition", "consumer-group", "epoch"))
PRODUCER = [f"com.microsoft:producer-{key}" for key in ("id", "epoch", "sequence-number")]
OFFSET, TIMESTAMP = "event-streams-offset", "event-streams-timestamp"


def source(**fields: Any) -> Described:
    names = ("address", "durable", "expiry_policy", "timeout", "dynamic", "properties", "mode", "filter", "outcome")
    given_fields = {"address": "wide"} | fields
    return Described(ulong(0x28), [given_fields.get(name) for name in (*names, "outcomes", "capabilities")])


TARGET = Described(ulong(0x29), ["wide"])


def filtered(descriptor: Any, value: Any) -> Described:
    return source(filter={symbol("f"): Described(descriptor, value)})


def annotated(**comparands: Any) -> Described:
    return filtered(ulong(0x200), {symbol(f"event-streams-{key}"): value for key, value in comparands.items()})


RECEIVERS: dict[str, tuple[Any, Any, str]] = {
    "partition, a number": (source(), {PARTITION: 1}, INVALID),
    "partition, a list": (source(), {PARTITION: ["0"]}, INVALID),
    "partition, binary": (source(), {PARTITION: b"0"}, INVALID),
    "partition, empty": (source(), {PARTITION: symbol("")}, NOT_FOUND),
    "partition, none such": (source(), {PARTITION: symbol("99")}, NOT_FOUND),
    "group, a number": (source(), {PARTITION: symbol("0"), GROUP: 7}, INVALID),
    "group, empty": (source(), {PARTITION: symbol("0"), GROUP: ""}, INVALID),
    "group, a map": (source(), {PARTITION: symbol("0"), GROUP: {}}, INVALID),
    "epoch, a text": (source(), {PARTITION: symbol("0"), GROUP: "g", EPOCH: "5"}, INVALID),
    "epoch, negative": (source(), {PARTITION: symbol("0"), GROUP: "g", EPOCH: -1}, INVALID),
    "epoch, a fraction": (source(), {PARTITION: symbol("0"), GROUP: "g", EPOCH: 1.5}, INVALID),
    "epoch, boolean": (source(), {PARTITION: symbol("0"), GROUP: "g", EPOCH: True}, INVALID),
    "epoch, too large": (source(), {PARTITION: symbol("0"), GROUP: "g", EPOCH: ulong(2**64 - 1)}, INVALID),
    "epoch without a group": (source(), {PARTITION: symbol("0"), EPOCH: 5}, INVALID),
    "properties, a list": (source(), ["a", "b"], INVALID),
    "properties, keyed by numbers": (source(), {1: 2}, INVALID),
    "source, null": (None, None, NOT_FOUND),
    "source, a text": ("wide", None, INVALID),
    "source, described as nothing known": (Described(ulong(0x99), ["wide"]), None, INVALID),
    "source, a map": (Described(ulong(0x28), {"address": "wide"}), None, INVALID),
    "address, null": (source(address=None), None, INVALID),
    "address, a number": (source(address=5), None, INVALID),
    "address, no such log": (source(address="nowhere"), None, NOT_FOUND),
    "durable, none such": (source(durable=uint(7)), None, INVALID),
    "durable, a text": (source(durable="yes"), None, INVALID),
    "expiry-policy, none such": (source(expiry_policy=symbol("tomorrow")), None, INVALID),
    "expiry-policy, a number": (source(expiry_policy=4), None, INVALID),
    "timeout, a text": (source(timeout="long"), None, INVALID),
    "distribution-mode, none such": (source(mode=symbol("throw")), None, INVALID),
    "dynamic-node-properties, a list": (source(properties=[1]), None, INVALID),
    "filter, a list": (source(filter=[1]), None, INVALID),
    "filter, a text": (source(filter="TRUE"), None, INVALID),
    "filter, keyed by numbers": (source(filter={1: Described(ulong(0x201), "TRUE")}), None, INVALID),
    "filter, not described": (source(filter={symbol("f"): "TRUE"}), None, INVALID),
    "filter, described by a list": (filtered([1], "TRUE"), None, INVALID),
    "filter, described by null": (filtered(None, "TRUE"), None, INVALID),
    "annotations filter, a text": (filtered(ulong(0x200), "x"), None, INVALID),
    "annotations filter, a list": (filtered(ulong(0x200), [1, 2]), None, INVALID),
    "annotations filter, null": (filtered(ulong(0x200), None), None, INVALID),
    "annotations filter, another key": (filtered(ulong(0x200), {symbol("colour"): 1}), None, INVALID),
    "annotations filter, a number as key": (filtered(ulong(0x200), {ulong(1): 1}), None, INVALID),
    "offset, a number": (annotated(offset=7), None, INVALID),
    "offset, null": (annotated(offset=None), None, INVALID),
    "offset, another constant": (annotated(offset=symbol("@newest")), None, INVALID),
    "offset, too short": (annotated(offset=symbol("ff")), None, INVALID),
    "offset, capitals": (annotated(offset=symbol("00000000000000FF")), None, INVALID),
    "time, a text": (annotated(timestamp="2026-11-20"), None, INVALID),
    "time, boolean": (annotated(timestamp=True), None, INVALID),
    "time, a fraction": (annotated(timestamp=1.5), None, INVALID),
    "SQL, a number": (filtered(ulong(0x201), 5), None, INVALID),
    "SQL, binary": (filtered(ulong(0x201), b"TRUE"), None, INVALID),
    "SQL, null": (filtered(ulong(0x201), None), None, INVALID),
    "SQL, empty": (filtered(ulong(0x201), ""), None, INVALID),
    "SQL, cut off": (filtered(symbol("amqp:sql-filter"), "a ="), None, INVALID),
    "SQL, nested too deeply": (filtered(ulong(0x120), "(" * 500 + "a" + ")" * 500), None, INVALID),
    "SQL, too long": (filtered(ulong(0x120), "a = '" + "x" * 5000 + "'"), None, INVALID),
    "selector": (filtered(symbol("apache.org:selector-filter:string"), "JMSType = 'a'"), None, INVALID),
    "selector, no SQL": (filtered(symbol("apache.org:selector-filter:string"), "a ="), None, INVALID),
    "properties filter": (filtered(ulong(0x173), {symbol("subject"): "x"}), None, NOT_IMPLEMENTED),
}

SENDERS: dict[str, tuple[Any, Any, str]] = {
    "target, a text": ("wide", None, INVALID),
    "target, empty address": (Described(ulong(0x29), [""]), None, INVALID),
    "target, dynamic": (Described(ulong(0x29), [None, None, None, None, True]), None, NOT_IMPLEMENTED),
    "target, no such log": (Described(ulong(0x29), ["nowhere"]), None, NOT_FOUND),
    "target, $info": (Described(ulong(0x29), ["wide/$info"]), None, NOT_ALLOWED),
    "coordinator": (Described(ulong(0x30), []), None, NOT_IMPLEMENTED),
    "partition, a number": (TARGET, {PARTITION: 1}, INVALID),
    "partition, none such": (TARGET, {PARTITION: symbol("99")}, NOT_FOUND),
    "durable, none such": (Described(ulong(0x29), ["wide", uint(9)]), None, INVALID),
    "properties, a text": (TARGET, "text", INVALID),
    "producer id, a text": (TARGET, {PARTITION: symbol("0"), **dict.fromkeys(PRODUCER, "x")}, ARGUMENT),
}


def keyed(properties: Any) -> Any:
    """Link properties have symbols as keys."""
    if not isinstance(properties, dict):
        return properties
    return {symbol(key) if isinstance(key, str) else key: value for key, value in properties.items()}


async def test_malformed_attaches_are_refused_each_for_its_reason(node: SingleNode) -> None:
    """All on one session, one after the other, a good link behind each."""
    async with ScriptedSpeaker(node.port) as speaker:
        handle = 0
        for receives, cases in ((True, RECEIVERS), (False, SENDERS)):
            for name, (terminus, properties, condition) in cases.items():
                ends = (terminus, Described(ulong(0x29), [])) if receives else (Described(ulong(0x28), []), terminus)
                link = f"{'receiver' if receives else 'sender'}: {name}"
                speaker.attach(link, handle, receives, *ends, keyed(properties))
                await speaker.sync("wide", f"good {handle}", handle + 1)
                assert await speaker.verdict(link) == condition, link
                handle += 2


REJECTED = 0x25
BODY = section(0x75, b"body")
MESSAGES: dict[str, tuple[bytes, str]] = {
    "nothing at all": (b"", "amqp:decode-error"),
    "no sections": (b"hello", "amqp:decode-error"),
    "target partition, a number": (section(0x71, {symbol("event-streams-target-partition"): 1}) + BODY, ""),
    "target partition, a list": (section(0x71, {symbol("event-streams-target-partition"): ["0"]}) + BODY, ""),
    "target partition, none such": (
        section(0x71, {symbol("event-streams-target-partition"): symbol("99")}) + BODY, NOT_FOUND,
    ),
    "group key, a number": (section(0x72, {symbol("event-streams-group-key"): 7}) + BODY, ""),
    "group key, binary": (section(0x72, {symbol("event-streams-group-key"): b"k"}) + BODY, ""),
    "group key, endless": (section(0x72, {symbol("event-streams-group-key"): "k" * 5000}) + BODY, INVALID),
    "delivery annotations, a list": (section(0x71, [1]) + BODY, ""),
    "message annotations, a text": (section(0x72, "text") + BODY, ""),
    "annotations cut off": (b"\x00\x53\x72\xc1\x40\x02", ""),
    "annotations only": (section(0x71, {symbol("a"): 1}), ""),
}  # fmt: skip


async def test_malformed_messages_are_rejected_and_the_next_one_is_taken(node: SingleNode) -> None:
    async with ScriptedSpeaker(node.port) as speaker:
        speaker.attach("sender", 0, False, Described(ulong(0x28), []), TARGET)
        await speaker.sync("wide", "good", 1)
        for name, (payload, condition) in MESSAGES.items():
            number = speaker.send(0, payload)
            state, found = await speaker.outcome(number)
            assert state == REJECTED, f"{name}: outcome 0x{state:x}"
            assert found in ({condition} if condition else {"amqp:decode-error", INVALID}), f"{name}: {found}"
            assert await speaker.outcome(speaker.send(0, BODY)) == (0x24, None)
        await speaker.sync("wide", "still good", 2)


# ---------------------------------------------------------------- at random

SELECTOR = symbol("apache.org:selector-filter:string")
SIMPLE: list[Any] = [
    None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), ulong(2**64 - 1), ubyte(255), uint(0), int32(-5), 1.5,
    float("nan"), float32(2.0), timestamp(0), timestamp(-1), "", "text", "0", symbol("0"), symbol("@latest"),
    symbol("@earliest"), "@latest", b"", b"\x00\xff", uuid.UUID(int=7), [], {}, "é\x00", symbol("f" * 300),
    "amqp.annotation.x-opt-offset > '-1'", "amqp.annotation.x-opt-sequence-number >= 7", "com.microsoft:epoch",
    f"{3:016x}", symbol(f"{3:016x}"), "TRUE", "d.event-streams-offset > '@latest'", "a = 1 OR", "copy", symbol("never"),
]  # fmt: skip
KEYS = [
    PARTITION, GROUP, EPOCH, OFFSET, TIMESTAMP, "f", "x", *PRODUCER, "com.microsoft:epoch",
    "com.microsoft:receiver-name",
]  # fmt: skip


def anything(rng: random.Random, depth: int = 3) -> Any:
    """Some AMQP value; the deeper, the simpler."""
    kind = rng.randrange(10) if depth else 0
    if kind < 6:
        return rng.choice(SIMPLE)
    if kind == 6:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        keys = [rng.choice([symbol, str])(rng.choice(KEYS)) for _ in range(rng.randrange(4))]
        return {key: anything(rng, depth - 1) for key in keys}
    if kind == 8:
        known = [ulong(0x200), ulong(0x201), ulong(0x120), symbol("amqp:sql-filter"), SELECTOR]
        descriptor = rng.choice([*known, 5, "x", None])
        return Described(descriptor, anything(rng, depth - 1))
    return Array(UNDESCRIBED, Data.INT, 1, 2)


def properties(rng: random.Random) -> Any:
    if rng.randrange(8) == 0:
        return anything(rng)
    return {symbol(key): anything(rng, 2) for key in rng.sample(KEYS, rng.randrange(4))}


def terminus(rng: random.Random, code: int) -> Any:
    if rng.randrange(12) == 0:
        return anything(rng)
    hubs = ["amqps://h/wide", "wide/Partitions/1", "/trades/ConsumerGroups/g/Partitions/0", "nowhere/Partitions/0"]
    fields: list[Any] = [rng.choice(["wide", "wide", "wide", "trades", "trades", "wide/$info", "nowhere", *hubs])]
    fields += [anything(rng, 2) if rng.randrange(4) == 0 else None for _ in range(6)]
    if code == 0x28:
        names = [symbol(rng.choice(string.ascii_letters)) for _ in range(rng.randrange(3))]
        fields.append({name: anything(rng) for name in names} if rng.randrange(5) else anything(rng))
    return Described(ulong(code), fields)


async def test_random_attaches_are_answered_and_the_session_lives(node: SingleNode) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"HOLDFAST_SEED={seed}")
    rng = random.Random(seed)
    refused = attached = 0
    for _ in range(EXAMPLES):
        async with ScriptedSpeaker(node.port) as speaker:
            for handle in range(0, 300, 3):
                receives = rng.random() < 0.7
                name = f"link {handle}"
                far, near = (0x28, 0x29) if receives else (0x29, 0x28)
                ends = [terminus(rng, far), Described(ulong(near), [])]
                speaker.attach(name, handle, receives, *(ends if receives else reversed(ends)), properties(rng))
                await speaker.sync("wide", f"good {handle}", handle + 1)
                condition = await speaker.verdict(name)
                assert condition in (None, TAKEN) or condition in CONDITIONS, f"{name}: {condition}"
                refused += condition in CONDITIONS
                attached += condition is None
    assert refused > attached / 10, "hardly anything was malformed"
    assert attached > 0, "nothing was well-formed"


values = st.recursive(
    st.sampled_from(SIMPLE) | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS).map(symbol) | st.integers(), inner, max_size=3),
        st.builds(Described, st.sampled_from([0x200, 0x201, 0x120, 0x170, 5]).map(ulong) | inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=500 * EXAMPLES)
@given(st.dictionaries(st.text(max_size=5).map(str), values, max_size=3))
def test_any_filter_set_is_a_selection_or_is_refused(filters: dict[str, Any]) -> None:
    result = selection_of(filters)
    if isinstance(result, Refused):
        assert result.error.condition in (INVALID, NOT_IMPLEMENTED)
        assert result.error.description
    else:
        assert set(result.in_force) <= set(filters)


def selection_of(filters: dict[str, Any]) -> Selection | Refused:
    try:
        return select(filters)
    except Refused as refusal:
        return refusal


@pytest.mark.parametrize("value", SIMPLE, ids=repr)
def test_simple_values_as_filters_never_raise_anything_else(value: Any) -> None:
    for described in (value, Described(ulong(0x200), value), Described(ulong(0x201), value), Described(value, "a = 1")):
        selection_of({"f": described})
