"""Letters as records: what their headers say, what is left out of those that are too large, and reading them back."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from tests.support.records import listed
from tidegate.config.fields.secrets import Redactor
from tidegate.formats import dead_letters as letters
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters.encoder import DeadLetterEncoder
from tidegate.formats.dead_letters.frames import (
    DEAD_LETTER_SCHEMA,
    RawRecord,
    dead_letters_of_records,
    dead_letters_of_rows,
)
from tidegate.formats.dead_letters.letter import DeadLetter, LetterMark, make_mark, read_dead_letter, read_mark
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.record_limits import RecordLimits, fits
from tidegate.ids import MAIN_CLUSTER, ClusterName, SourceTopic

FAILURE = RecordFailure(0, FailureKind.WRONG_TYPE, "Expected `int`")
HEADERS: Headers = (("h", b"1"), ("h", None), ("", b"\xff"))
ORDERS = (SourceTopic(MAIN_CLUSTER, "orders"),)
US = ClusterName("us")
LIMITS = RecordLimits("dead", record_bytes=1 << 30, batch_bytes=1 << 20, partitions=4)


def about(raw: RawRecord, *, partition: int = 3, row: str | None = None) -> pl.DataFrame:
    frame = dead_letters_of_records("orders", MAIN_CLUSTER, [("orders", partition, 17, raw, FAILURE)])
    return frame.with_columns(pl.lit(row, pl.String).alias("row"), pl.lit("{}").alias("row_types"))


@pytest.mark.parametrize("count", [b"9" * 5_000, b"--1", b"-1", "\u0663".encode()])
def test_a_record_whose_count_of_headers_is_none_is_no_letter(count: bytes) -> None:
    headers = [("h", b"1"), (letters.KIND, b"WRONG_TYPE"), (letters.HEADERS, count)]
    assert read_dead_letter(0, 0, None, b"k", b"v", headers) is None


def test_numbers_of_a_letter_that_are_none_of_kafkas_are_unknown() -> None:
    """A timestamp of more than 64 bits ended `dead-letters replay` with a traceback."""
    headers = [(letters.KIND, b"X"), (letters.HEADERS, b"0"), (letters.TIMESTAMP, b"9" * 19), (letters.OFFSET, b"-1x")]
    found = read_dead_letter(0, 0, None, b"k", b"v", [*headers, (letters.PARTITION, str(2**63 - 1).encode())])
    assert found is not None
    assert (found.timestamp_ms, found.source_offset, found.source_partition) == (None, None, 2**63 - 1)


def encode(frame: pl.DataFrame, limits: RecordLimits | None = LIMITS) -> tuple[DeadLetter, dict[str, str]]:
    """The only letter, and its headers."""
    records = listed(DeadLetterEncoder("sales", 7).encode(frame, limits))
    assert records.keys is not None
    assert records.headers is not None
    headers = records.headers[0]
    assert headers is not None
    assert limits is None or fits(records.keys[0], records.values[0], headers, limits)
    letter = read_dead_letter(1, 2, 3, records.keys[0], records.values[0], headers)
    assert letter is not None
    return letter, {name: (value or b"").decode(errors="replace") for name, value in headers}


def test_the_bytes_of_letters_are_those_of_keys_values_and_headers() -> None:
    records = DeadLetterEncoder("sales", 7).encode(about(RawRecord(b"k", None, HEADERS, 99)), LIMITS)
    found = listed(records)
    assert found.keys is not None
    assert found.headers is not None
    headers = [header for one in found.headers for header in one or ()]
    parts = [*found.keys, *found.values, *(name.encode() for name, _ in headers), *(value for _, value in headers)]
    assert records.size_bytes == sum(len(part or b"") for part in parts) > len(b"k")


def test_a_letter_has_the_record_and_the_reason_in_the_words_of_kip_1034() -> None:
    letter, headers = encode(about(RawRecord(b"k", b"v", HEADERS, 99)))
    assert (letter.key, letter.value, letter.headers, letter.timestamp_ms) == (b"k", b"v", HEADERS, 99)
    assert {name: text for name, text in headers.items() if name.startswith("__streams.errors.")} == {
        "__streams.errors.exception": "WRONG_TYPE",
        "__streams.errors.message": "Expected `int`",
        "__streams.errors.topic": "orders",
        "__streams.errors.partition": "3",
        "__streams.errors.offset": "17",
    }
    assert {name: text for name, text in headers.items() if name.startswith("__tidegate.errors.")} == {
        "__tidegate.errors.pipeline": "sales",
        "__tidegate.errors.step": "orders",
        "__tidegate.errors.kind": "WRONG_TYPE",
        "__tidegate.errors.attempt": "7",
        "__tidegate.errors.timestamp": "99",
        "__tidegate.errors.bytes": "original",
        "__tidegate.errors.headers": "3",
    }
    assert letter.whole


def test_a_tombstone_without_a_key_stays_one() -> None:
    letter, _ = encode(about(RawRecord(None, None, (), None)))
    assert (letter.key, letter.value, letter.timestamp_ms, letter.whole) == (None, None, None, True)


def test_a_letter_about_a_letter_keeps_the_older_reason_as_the_records_own_headers() -> None:
    _, first = encode(about(RawRecord(b"k", b"v", (), 1)))
    older = tuple((name, text.encode()) for name, text in first.items())
    letter, headers = encode(about(RawRecord(b"k", b"v", older, 1), partition=2))
    assert letter.headers == older
    assert letter.source_partition == 2
    assert headers["__streams.errors.partition"] == "2", "of names that repeat the last one counts"


@pytest.mark.parametrize(
    ("raw", "row", "kept"),
    [
        (RawRecord(b"k", b"v" * 10_000, HEADERS, 1), '"%s"' % ("r" * 15_000), {"value", "key", "headers"}),
        (RawRecord(b"k", b"v" * 30_000, HEADERS, 1), '"r"', {"key", "headers", "row"}),
        (RawRecord(b"k" * 12_000, b"v" * 30_000, HEADERS, 1), '"%s"' % ("r" * 15_000), {"key", "headers"}),
        (RawRecord(b"k" * 30_000, b"v", HEADERS, 1), '"r"', {"row"}),
        (RawRecord(b"k" * 30_000, b"v", HEADERS, 1), '"%s"' % ("r" * 15_000), {"row"}),
        (RawRecord(b"k", b"v", (("h", b"x" * 30_000),), 1), None, set()),
    ],
)
def test_what_has_no_room_is_left_out_and_said(raw: RawRecord, row: str | None, kept: set[str]) -> None:
    limits = RecordLimits("dead", record_bytes=1 << 30, batch_bytes=letters.DEAD_LETTER_BYTES_MIN + 4096)
    letter, _ = encode(about(raw, row=row), limits)
    present = {
        name
        for name, there in {
            "value": letter.value is not None,
            "key": letter.key is not None,
            "headers": letter.headers != (),
            "row": letter.row is not None,
        }.items()
        if there
    }
    assert present == kept
    assert letter.whole == ("value" in kept)
    assert letter.known == ("original" if letter.whole else "too-large")
    assert letter.value_size == (None if letter.whole else len(raw.value or b""))
    if row is not None and letter.row is None:
        assert letter.row_size == len(row)


def test_the_least_that_a_letter_can_be_fits_in_the_least_topic_that_is_accepted() -> None:
    limits = RecordLimits("dead", record_bytes=1 << 30, batch_bytes=letters.DEAD_LETTER_BYTES_MIN)
    failure = RecordFailure(0, FailureKind.DATETIME_FIELD_OUT_OF_BOUNDS, "\N{GRINNING FACE}" * 100_000)
    raw = RawRecord(b"k" * 100_000, b"v" * 100_000, [("h" * 100_000, b"x")], 1 << 60)
    longest = ("t" * 249, 2**31 - 1, 2**63 - 1, raw, failure)
    frame = dead_letters_of_records("s" * 100, ClusterName("c" * 100), [longest])
    frame = frame.with_columns(pl.lit('"%s"' % ("r" * 60_000)).alias("row"), pl.lit("t" * 60_000).alias("row_types"))
    records = listed(DeadLetterEncoder("p" * 100, 2**31).encode(frame, limits))
    assert records.headers is not None
    assert fits(None, None, records.headers[0] or (), limits)
    assert records.values == [None]


def test_a_row_that_is_too_long_is_left_out_with_its_size() -> None:
    frame = pl.DataFrame({"id": ["ä" * (letters.ROW_BYTES_MAX // 2), "b"]})
    found = dead_letters_of_rows("step", ORDERS, frame, [FAILURE, RecordFailure(1, FailureKind.WRONG_TYPE, "x")])
    assert found["row"].to_list() == [None, '{"id":"b"}']
    assert found["row_types"].to_list() == [None, '{"id":"string"}']
    letter, headers = encode(found[:1])
    assert (letter.row, letter.row_types, letter.row_size) == (None, None, letters.ROW_BYTES_MAX + len('{"id":""}'))
    assert headers["__tidegate.errors.row-size"] == str(letter.row_size)
    letter, headers = encode(found[1:])
    assert (letter.row, letter.row_types, letter.row_size) == ('{"id":"b"}', '{"id":"string"}', None)
    assert headers["__tidegate.errors.row-types"] == '{"id":"string"}'


def test_secrets_are_masked_in_the_row_and_in_the_message() -> None:
    """A server's answer, or an exception of the user's code, may quote what it was given."""
    failure = RecordFailure(0, FailureKind.CALL_FAILED, 'refused: "open\\sesame"')
    frame = pl.DataFrame({"id": [1], "notes": [['as "open\\sesame"', "b"]], "s": [{"t": "x open\\sesame"}]})
    found = dead_letters_of_rows("step", ORDERS, frame, [failure])
    records = listed(DeadLetterEncoder("sales", 7, Redactor(["open\\sesame"])).encode(found, LIMITS))
    assert records.headers is not None
    letter = read_dead_letter(0, 0, None, None, None, records.headers[0] or ())
    assert letter is not None
    assert letter.message == 'refused: "***"'
    assert (letter.row, letter.row_masked) == ('{"id":1,"notes":["as \\"***\\"","b"],"s":{"t":"x ***"}}', 2)
    plain, _ = encode(found)
    assert plain.row_masked is None


def test_letters_about_one_partition_are_in_one_partition() -> None:
    frame = pl.concat([about(RawRecord(None, b"v", (), 1), partition=number) for number in (0, 1, 2, 3, 4, 0)])
    found = listed(DeadLetterEncoder("p", 1).encode(frame, LIMITS)).partitions
    assert found is not None
    assert found[0] == found[5] == found[4]
    assert set(found[:4]) == {0, 1, 2, 3}, "those of neighbours are spread"
    assert listed(DeadLetterEncoder("p", 1).encode(frame)).partitions == [None] * 6


def rows(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": [1, 2], "data": [b"\xff", b""], **columns})


def test_rows_of_one_topic_are_found_by_their_place_and_those_of_several_by_their_own() -> None:
    failures = [FAILURE, RecordFailure(1, FailureKind.DIVIDE_BY_ZERO, "division by zero")]
    placed = rows(__tidegate_partition=[0, 1], __tidegate_offset=[5, 6])
    found = dead_letters_of_rows("step", ORDERS, placed, failures)
    assert found.schema == pl.Schema(DEAD_LETTER_SCHEMA)
    assert found.select("topic", "partition", "offset", "bytes").rows() == [
        ("orders", 0, 5, "wanted"),
        ("orders", 1, 6, "wanted"),
    ]
    assert [json.loads(text) for text in found["row"]] == [{"id": 1, "data": "/w=="}, {"id": 2, "data": ""}]
    several = (SourceTopic(MAIN_CLUSTER, "more"), *ORDERS)
    unknown = dead_letters_of_rows("step", several, placed, failures)
    assert unknown.select("topic", "bytes").rows() == [(None, "no-record")] * 2
    named = dead_letters_of_rows(
        "step", several, placed.with_columns(__tidegate_topic=pl.Series(["more", None])), failures
    )
    assert named.select("topic", "bytes").rows() == [("more", "wanted"), (None, "no-record")]
    assert dead_letters_of_rows("step", ORDERS, rows(), failures)["bytes"].to_list() == ["no-record"] * 2


def test_rows_of_several_clusters_are_found_by_their_own() -> None:
    both = (SourceTopic(MAIN_CLUSTER, "orders"), SourceTopic(US, "orders"))
    failures = [FAILURE, RecordFailure(1, FailureKind.DIVIDE_BY_ZERO, "division by zero")]
    placed = rows(__tidegate_partition=[0, 0], __tidegate_offset=[5, 5])
    named = placed.with_columns(__tidegate_cluster=pl.Series([US, None]))
    found = dead_letters_of_rows("step", both, named, failures)
    assert found.select("cluster", "topic", "bytes").rows() == [(US, "orders", "wanted"), (None, "orders", "no-record")]
    of_one = dead_letters_of_rows("step", both[1:], placed, failures)
    assert of_one.select("cluster", "topic", "bytes").rows() == [(US, "orders", "wanted")] * 2


def test_a_letter_names_the_cluster_of_its_record_unless_it_is_the_main_one() -> None:
    raw = RawRecord(b"k", b"v", (), 99)
    frames = [
        dead_letters_of_records("orders", cluster, [("orders", 3, 17, raw, FAILURE)]) for cluster in (MAIN_CLUSTER, US)
    ]
    (main, of_main), (us, of_us) = map(encode, frames)
    assert (main.cluster, us.cluster) == (MAIN_CLUSTER, US)
    assert letters.CLUSTER not in of_main
    assert (of_us[letters.CLUSTER], of_us[letters.TOPIC]) == ("us", "orders")
    assert (main.place, us.place) == ("orders[3] offset 17", "orders[3] offset 17 in us")


def test_marks_name_letters_in_ranges() -> None:
    value = make_mark([7, 3, 4, 5, 9], "orders")
    assert json.loads(value) == {"offsets": [[3, 5], [7, 7], [9, 9]], "to": "orders"}
    mark = read_mark(value, [(letters.MARKER, b"5")])
    assert mark == LetterMark(((3, 5), (7, 7), (9, 9)), "orders")
    assert read_mark(value, []) is None
    assert read_mark(b"{", [(letters.MARKER, b"5")]) is None


def test_a_letter_about_a_record_with_the_header_of_a_mark_is_no_mark() -> None:
    """Whoever may write to the source's topic could mark all letters; so did marks that another pipeline reads."""
    record = RawRecord(None, make_mark([0, 1, 2], "orders"), ((letters.MARKER, b"3"),), 99)
    records = listed(DeadLetterEncoder("sales", 7).encode(about(record), LIMITS))
    assert records.headers is not None
    headers = records.headers[0]
    assert headers is not None
    assert headers[0] == (letters.MARKER, b"3")
    assert read_mark(records.values[0], headers) is None


@pytest.mark.parametrize(
    "headers",
    [(), ((letters.KIND, b"X"),), ((letters.KIND, b"X"), (letters.HEADERS, b"5")), ((letters.HEADERS, b"x"),)],
)
def test_what_somebody_else_has_written_is_no_letter(headers: Headers) -> None:
    assert read_dead_letter(0, 0, None, b"k", b"v", headers) is None


def test_a_message_that_is_no_utf8_and_headers_that_cannot_be_read_cost_no_letter() -> None:
    failure = RecordFailure(0, FailureKind.CALL_FAILED, "\udcff in the user's words")
    frame = dead_letters_of_records("orders", MAIN_CLUSTER, [("orders", 0, 1, RawRecord(b"k", b"v", None, 1), failure)])
    letter, _ = encode(frame)
    assert (letter.message, letter.known, letter.whole) == ("? in the user's words", "no-headers", False)
    assert (letter.key, letter.value, letter.headers) == (b"k", b"v", ())
    assert dead_letters_of_rows("step", ORDERS, rows(), [failure])["message"].to_list() == ["? in the user's words"]
