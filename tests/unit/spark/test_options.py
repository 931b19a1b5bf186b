"""Each wrong option is refused with a sentence that names it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")

from holdfast.spark.errors import OptionError
from holdfast.spark.offsets import EARLIEST, LATEST, Place, Places
from holdfast.spark.options import parse
from holdfast.spark.schema import COLUMNS

NEEDED = {"servers": "127.0.0.1:5672", "log": "trades"}


def test_what_is_left_out_has_its_default() -> None:
    options = parse(NEEDED, streaming=False)
    assert (options.servers, options.log, options.start, options.end) == ("127.0.0.1:5672", "trades", None, None)
    assert (options.uncommitted, options.fail_on_data_loss, options.columns) == (False, True, COLUMNS)


def test_names_come_in_any_case_as_spark_hands_them_over() -> None:
    given = {"STARTINGOFFSETS": "Earliest", "minpartitions": "7", "Columns": "key, BODY", "partitions": "2, 0"}
    options = parse(NEEDED | given, streaming=False)
    assert options.start == Places(every=EARLIEST)
    assert (options.min_partitions, options.columns, options.partitions) == (7, ("key", "body"), ("2", "0"))


def test_places() -> None:
    by_partition = parse(NEEDED | {"startingOffsets": '{"0": 5, "1": -2, "2": -1}'}, streaming=True).start
    assert by_partition == Places(of={"0": Place(offset=5), "1": EARLIEST, "2": LATEST})
    for text in ("1381156200000", "2013-10-07T14:30:00Z", "2013-10-07T16:30:00+02:00", "2013-10-07 14:30:00"):
        options = parse(NEEDED | {"startingTimestamp": text, "endingTimestamp": text}, streaming=False)
        assert options.start == options.end == Places(every=Place(timestamp_ms=1381156200000))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "there is no option 'startingofsets': did you mean startingOffsets?"),
        ({"zzz": "blue"}, "there is no option 'zzz': there are servers, log"),
        ({"log": " "}, "option log is missing"),
        ({"servers": ""}, "option servers is missing"),
        ({"isolation": "serializable"}, "option isolation is 'committed' or 'uncommitted', not 'serializable'"),
        ({"columns": "body,colour"}, "option columns names 'colour': there are body, partition"),
        ({"columns": "body,body"}, "option columns names a column twice"),
        ({"filter": "  "}, "option filter is empty"),
        ({"minPartitions": "0"}, "option minPartitions is a whole number from 1 on, not '0'"),
        ({"minPartitions": "many"}, "option minPartitions is a whole number from 1 on, not 'many'"),
        ({"partitions": "0,,1"}, "option partitions is a list such as 0,2,5"),
        ({"partitions": "0,0"}, "option partitions is a list such as 0,2,5, each once"),
        ({"maxEventsPerTrigger": "10"}, "option maxEventsPerTrigger means nothing to a batch"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingTimestamp contradict each other"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "endingTimestamp contradict each other"),
        ({"startingOffsets": "soon"}, "option startingOffsets is earliest, latest, or an offset for each partition"),
        ({"startingOffsets": '{"0": -3}'}, "option startingOffsets is earliest, latest, or an offset"),
        ({"startingOffsets": '{"0": true}'}, "option startingOffsets is earliest, latest, or an offset"),
        ({"startingOffsets": "{}"}, "option startingOffsets is earliest, latest, or an offset"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp is milliseconds since 1970, or a time"),
        ({"startingTimestamp": "1900-01-01"}, "option startingTimestamp is not before 1970"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss is true or false, not 'perhaps'"),
    ],
)
def test_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(NEEDED | options, streaming=False)
    assert said in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="option endingOffsets means nothing to a stream"):
        parse(NEEDED | {"endingOffsets": "latest"}, streaming=True)
