"""A key goes to the partition that other implementations of the same rule send it to."""

import pytest

from holdfast.amqp.key_partitioner import key_code, partition_index

# Published vectors of the service's own hash.
CODES = {
    "7": -15263,
    "131": 30562,
    "FWfAT": -22341,
    "7149583486996073602": 12977,
    "sOdeEAsyQoEuEFPGerWO": -6503,
    "$0cb": 26269,
    "!c*_!I@1^c": 15372,
    "p4*!jioeO/z-!-;w:dh": -3104,
    "-4189260826195535198": 453,
    "": 0,
}


@pytest.mark.parametrize(("key", "code"), CODES.items())
def test_codes_agree_with_the_published_vectors(key: str, code: int) -> None:
    assert key_code(key) == code


@pytest.mark.parametrize(
    ("key", "partitions", "index"),
    [("alphabet", 11, 4), ("alphabet", 3, 0), ("a", 32, 28), ("order-42", 32, 19), ("TheWorstParitionEver", 15, 1)],
)
def test_partitions_agree_with_the_published_vectors(key: str, partitions: int, index: int) -> None:
    assert partition_index(key, partitions) == index


def test_a_key_that_is_not_ascii_is_hashed_by_its_utf8_bytes() -> None:
    assert key_code("zażółć") == key_code("zażółć".encode().decode("utf-8"))
    assert 0 <= partition_index("zażółć", 7) < 7


def test_a_log_without_partitions_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        partition_index("key", 0)
