"""Bodies that stay in their packed batch: passed on as they came, opened by whoever stores them, held once."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from holdfast.amqp import MalformedMessage
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import JoinedMessages, table_of
from holdfast.records.packed_batch import PackedNumbers, digests_of, pack, pack_joined, unpack
from holdfast.records.packed_bodies import PackedBodies, held_bytes, opened, packed_bodies
from holdfast.records.sealed_section import seal

BODIES = [b"price of IBM: %d" % (number % 7) for number in range(200)]
NUMBERS = PackedNumbers(7, 3, 40, digests_of(BODIES))
PLENTY = 1 << 20


def batch(codec: Codec = Codec.NONE, numbers: PackedNumbers | None = None) -> bytes:
    return pack_joined(table_of(BODIES), (b"".join(BODIES),), codec, bodies=True, numbers=numbers)


def looked_at(packed: bytes) -> PackedBodies:
    found = packed_bodies(packed, PLENTY)
    assert found is not None
    return found


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("numbers", [None, NUMBERS])
def test_it_is_passed_on_as_it_came_and_opens_to_what_is_in_it(codec: Codec, numbers: PackedNumbers | None) -> None:
    packed = batch(codec, numbers)
    found = looked_at(packed)
    assert found.packed() is packed
    assert (len(found), found.size, found.numbers) == (200, sum(map(len, BODIES)), numbers)
    inside = opened(found)
    assert isinstance(inside, JoinedMessages)
    assert (inside.bodies, inside.parts()) == (True, BODIES)
    assert list(found) == list(inside) == found[:]
    assert unpack(found.packed(), PLENTY) == (list(inside), numbers), "also when it has been opened"


def test_it_is_held_once_opened_or_not() -> None:
    plain, compressed = looked_at(batch()), looked_at(batch(Codec.ZSTD))
    assert plain.held_bytes == len(batch()) == held_bytes(plain)
    assert compressed.held_bytes == compressed.size > len(batch(Codec.ZSTD))
    plain.open()
    assert plain.open()._data is plain.packed(), "they share their memory"
    compressed.open()
    assert compressed._packed is None
    assert (plain.held_bytes, compressed.held_bytes) == (len(batch()), compressed.size)


def test_what_holds_messages_is_not_for_it() -> None:
    assert packed_bodies(pack(BODIES), PLENTY) is None
    assert opened(BODIES) is BODIES
    assert held_bytes(BODIES) == sum(map(len, BODIES))


def test_what_is_wrong_from_outside_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(MalformedMessage, match="checksum"):
        packed_bodies(batch()[:-1] + b"?", PLENTY)
    for codec in Codec:
        with pytest.raises(MalformedMessage, match="at most 100 are taken"):
            packed_bodies(batch(codec), 100)


def test_what_does_not_decompress_says_so_to_who_opens_it() -> None:
    found = looked_at(that_does_not_decompress())
    assert found.packed() == that_does_not_decompress()
    for _ in range(2):
        with pytest.raises(MalformedMessage, match="does not decompress"):
            opened(found)


def that_does_not_decompress() -> bytes:
    """With a checksum that is right."""
    whole = batch(Codec.ZSTD)
    content = whole[whole.index(b"\x02") + 5 :]
    assert crc32c(content) == int.from_bytes(whole[-len(content) - 4 : -len(content)], "big")
    return seal(2, (content[:-20], bytes(20)))
