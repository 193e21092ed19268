"""JSON decoded in C: never another value or another failure than msgspec's, and ordinary data wholly in C."""

from __future__ import annotations

import json
import random
from typing import Final

import pytest

from tests.depth import DEPTH
from tests.formats.any_json import BAD_LETTERS, FRACTIONS, LETTERS, NUMBERS, OFFSETS, JsonTexts, damaged
from tests.formats.batches import messages_of
from tests.formats.memory_batches import Compared, Fates
from tests.formats.schemas_of_json import FLAT, MONEY, NESTED, array_of, struct_of
from tests.native.values import NativeValues
from tidegate.datatypes import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    map_of,
)
from tidegate.formats.contract import Columns, ValueMemory
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.schemas import FormatOptions, UnknownFields

SCHEMAS: Final = {"flat": FLAT, "nested": NESTED}
ROWS: Final = 150


def draw_columns(rnd: random.Random, columns: Columns, *, strict: bool) -> Compared:
    """Reads all of the columns, some or none."""
    share = rnd.choice((0.5, 1, 1))
    return Compared(columns, [one for one in columns if rnd.random() < share], strict=strict)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * DEPTH))
@pytest.mark.parametrize("name", SCHEMAS)
def test_any_record_has_the_same_fate(name: str, seed: int) -> None:
    """Good, odd and damaged ones together: a record next to a bad one keeps its row."""
    print(f"seed {seed}")
    rnd, fates = random.Random(seed), Fates()
    for oddity in (0, 0.01, 0.05, 0.3):
        strict = rnd.random() < 0.3
        texts = JsonTexts(rnd, oddity, spaced=rnd.random() < 0.5, strangers=not strict)
        values: list[bytes | None] = []
        for _ in range(ROWS):
            value = texts.record(SCHEMAS[name])
            values.append(damaged(rnd, value) if rnd.random() < 0.3 else value)
        values[7:7] = [None, b""]
        fates = fates.plus(draw_columns(rnd, SCHEMAS[name], strict=strict).check(values))
    assert min(fates.certain, fates.bad) > 0.05 * sum(fates)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_ordinary_records_are_decoded_in_c_all_of_them(name: str) -> None:
    """Escapes, other scripts, exponents, doubles of 17 digits, decimals, timestamps: else the tests of equality would
    compare msgspec with itself.
    """
    texts = JsonTexts(random.Random(1), spaced=True)
    values = [texts.record(SCHEMAS[name]) for _ in range(ROWS)]
    assert Compared(SCHEMAS[name]).check(values) == Fates(certain=ROWS)


TYPES: Final = tuple(kind for _, kind in (*FLAT, *NESTED))


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_value_of_each_type_alone(kind: DataType) -> None:
    """Where nothing else of the record is odd."""
    rnd, both = random.Random(2), Compared([("v", kind)])
    good, odd = JsonTexts(rnd), JsonTexts(rnd, 1)
    assert both.check([b'{"v":%s}' % good.value(kind).encode("utf-8", "surrogateescape") for _ in range(400)]).bad == 0
    assert both.check([b'{"v":%s}' % odd.value(kind).encode("utf-8", "surrogateescape") for _ in range(400)]).bad > 0


DATES: Final = ("2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "0001-01-01", "0000-01-01", "9999-12-31")
MOMENTS: Final = (
    *(f"2026-01-31T23:59:59{digits}{offset}" for digits in FRACTIONS for offset in OFFSETS),
    *(f"{day}T00:00:00{offset}" for day in DATES for offset in OFFSETS),
    *(f"2026-{day}{between}12:00:00Z" for day in ("04-31", "13-01", "00-10", "01-00", "1-1") for between in "Tt _"),
    *(f"2026-01-01T{clock}Z" for clock in ("24:00:00", "23:60:00", "23:59:60", "1:00:00", "12:00", "12-00-00", "")),
    "2026-01-01T00:00:00.5\\u005a",
    "2026-01-01T00:00:00\\u0000",
    "2026-01-01T00:00:00é",
    "9998-12-31T23:59:59.9999999Z",
    "1969-12-31T23:59:59.9999995Z",
)
TEXTS: Final = (
    *LETTERS,
    *BAD_LETTERS,
    *(f"a{bad}b" for bad in BAD_LETTERS),
    *("x" * length for length in (11, 12, 13, 40)),
    *("é" * length for length in (5, 6, 7, 40)),
    *("\\n" * length for length in (11, 12, 13, 40)),
    *("\udcc3", "\udce2\udc82", "\udcf0\udc9f\udc98", "\udce0\udc80\udc80", "\udcf8", "\udcbf", "é\udcff"),
    *(
        "AA==",
        "AAA=",
        "AAAA",
        "AB==",
        "A===",
        "====",
        "=",
        "AA=A",
        "AA==AA==",
        "AA\\u003d\\u003d",
        "A\\/A=",
        "QUJD" * 20,
    ),
)
LITERALS: Final = (
    "true",
    "false",
    "null",
    "t",
    "tru",
    "truE",
    "nul",
    "nulll",
    "[]",
    "{}",
    "[[]]",
    "[1",
    "[1,]",
    "[,1]",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [BIGINT, TINYINT, DOUBLE, FLOAT, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, MONEY]
)
def test_nasty_values(kind: DataType) -> None:
    """Each as a value that is read, one that is only checked, an element of an array, and one that nobody declared."""
    texts = [
        *NUMBERS,
        *LITERALS,
        *(f'"{one}"' for one in (*NUMBERS, *MOMENTS, *DATES, *TEXTS)),
        '"',
        "'a'",
        "",
        " ",
        "\v1",
    ]
    shapes = ('{"v":%s}', '{"l":[null,%s]}', '{"x":%s,"v":null}', '{"x":[{"y":%s}]}', '{"v":%s', "%s", '{"v":1%s}')
    declared = [("v", kind), ("l", array_of(kind))]
    values = [(shape % text).encode("utf-8", "surrogateescape") for shape in shapes for text in texts]
    for read in (declared, declared[1:]):
        assert Compared(declared, read).check(values).certain > 100


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_largest_floats_are_decoded_in_c_and_what_rounds_to_infinity_is_bad(sign: str) -> None:
    both = Compared([("v", FLOAT)])
    for texts, fates in (
        (("3.4028234663852886e38", "3.4028235E38", "3.4028235677973362e38"), Fates(certain=3)),
        (("3.4028235677973366e38", "1e39"), Fates(bad=2)),
    ):
        assert both.check([b'{"v":%s}' % f"{sign}{text}".encode() for text in texts]) == fates


RECORDS: Final = (
    *(b"", b" ", b"{}", b" {} ", b"{ }", b"[]", b"null", b"{", b"{}{}", b"{}x", b"\xef\xbb\xbf{}", b"{,}", b'{"i"}'),
    *(b'{"i":}', b'{"i":1,}', b'{,"i":1}', b'{"i":1 "s":"a"}', b'{"i":1,,"s":"a"}', b'{"i" : 1 , "s" : "a"}'),
    *(b'\t{"i":1}\r\n', b'{"i":1,"i":2}', b'{"i":null,"i":2}', b'{"i":2,"i":null}', b'{"s":"a","s":1}', b"{'i':1}"),
    *(b'{"x":1,"x":2}', b"{i:1}", b'{"\\u0069":5}', b'{"i\\u0000":5}', b'{"i\n":5}', b'{"\xff":5}', b'{"":5}'),
    *(b'{"i":1}\x00', b'{"i":1}\xc2\xa0', b'{"i":1}//', b'{"o":{"a":1,"a":2}}', b'{"o":{"z":1}}', b'{"o":{}}'),
    *(b'{"o":{"a":1}', b'{"l":[{"a":1},{"a":"x"}]}', b'{"l":[{"a":1}{}]}', b'{"i":1,"ii":2,"I":3}'),
    *(b'{"i":1,"l":[{},null,{"a":null}]}', b'{"i":1' + b" " * 100 + b"}"),
    *(b'{"x":' + b"[" * depth + b"]" * depth + b"}" for depth in (1, 63, 64, 65, 66, 500)),
    *(b'{"x":' + b'{"y":' * depth + b"1" + b"}" * depth + b"}" for depth in (63, 65)),
    b'{"x":' + b"[" * 100_000,
    b'{"l":' + b"[" * 100_000,
)


@pytest.mark.parametrize("strict", [False, True])
def test_nasty_records(*, strict: bool) -> None:
    """Alone, and between good ones."""
    good = b'{"i":7,"s":"abc","o":{"a":1},"l":[{"a":1},{"a":2}]}'
    declared = [("i", BIGINT), ("s", STRING), ("o", struct_of(a=INT)), ("l", array_of(struct_of(a=INT)))]
    for read in (declared, declared[:1], declared[3:], []):
        both = Compared(declared, read, strict=strict)
        for record in RECORDS:
            both.check([good, record, good, None, record, record, good])


@pytest.mark.slow
def test_every_truncation_of_a_record() -> None:
    columns = [*FLAT, *NESTED[:-1]]
    value = JsonTexts(random.Random(3)).record(columns)
    Compared(columns).check([value[:end] for end in range(len(value) + 1)])


def test_more_names_that_nobody_declared_than_are_remembered() -> None:
    rnd = random.Random(4)
    records = [{f"n{rnd.randrange(500)}": 1 for _ in range(rnd.randrange(20))} | {"i": row} for row in range(ROWS)]
    for record in records:
        record.update({f"n{rnd.randrange(500)}": row for row in range(rnd.randrange(20))})
    assert Compared([("i", BIGINT)]).check([json.dumps(one).encode() for one in records]).certain == ROWS


def test_names_of_any_length_are_told_apart() -> None:
    """Some differ in one letter, wherever that is."""
    names = ["n" * length for length in range(1, 40)]
    names += [
        f"{'n' * place}m{'n' * (length - place - 1)}" for length in (7, 8, 9, 16, 17, 30) for place in range(length)
    ]
    names += ["é", "日本", "a b", "a.b", "'"]
    rnd = random.Random(5)
    records = [dict.fromkeys(rnd.sample(names, 30), row) for row in range(ROWS)]
    values = [json.dumps(one, ensure_ascii=False).encode() for one in records]
    assert Compared([(name, BIGINT) for name in names]).check(values).certain == ROWS


MAPS: Final = (
    *(
        "{}",
        "{ }",
        '{"a":1}',
        '{"a":1,"a":2}',
        '{"a":1,"b":null,"a":null}',
        '{"a":1,}',
        '{,"a":1}',
        '{"a"}',
        '{"a":}',
        "[]",
    ),
    *(
        '{"a":"x"}',
        "{1:2}",
        "{null:1}",
        '{"a":1 "b":2}',
        '{"\\u0061":1,"a":2}',
        '{"\udcff":1}',
        '{"a\n":1}',
        '{"":1,"":2}',
    ),
    *('{"abcdefghijklm1":1,"abcdefghijklm2":2}', '{"abcdefghijklm1":1,"abcdefghijklm1":2}', '{"a":1,"aa":2,"ab":3}'),
    *(json.dumps({f"k{n}": n for n in range(count)}) for count in (63, 64, 65, 300)),
)


@pytest.mark.parametrize("text", MAPS)
def test_nasty_maps(text: str) -> None:
    kind = map_of(STRING, INT)
    values = [(shape % text).encode("utf-8", "surrogateescape") for shape in ('{"v":%s}', '{"l":[{"z":1},%s,null]}')]
    good: list[bytes | None] = [b'{"v":{"a":1,"b":2},"l":[{"c":3}]}', b'{"v":null}', b'{"v":{}}']
    declared = [("v", kind), ("l", array_of(kind))]
    for read in (declared, declared[:1], declared[1:]):
        Compared(declared, read).check([*good, *values, *good])


def test_names_with_escapes() -> None:
    """As Python's own encoder writes other scripts, some letters, all of them, and texts that mean something else."""
    rnd = random.Random(6)
    names = ["größe", "日本", "i", "😀x", "e", "straße und hausnummer", "long" * 70]
    values: list[bytes | None] = []
    for row in range(ROWS):
        chosen = [*names, "ö", "fremd", 'a"b', "a\\b", "i\n", f"ü{row}"]
        rnd.shuffle(chosen)
        members = (f"{json.dumps(name)}:{row}" for name in chosen)
        values.append(f"{{{','.join(members)}}}".encode())
    columns = [(name, BIGINT) for name in names]
    assert Compared(columns).check(values) == Fates(certain=ROWS)
    odd = (
        '"\\u0069"',
        '"\\\\u0069"',
        '"\\\\\\u0069"',
        '"\\u0069\\u0000"',
        '"\\u00"',
        '"\\ud800"',
        '"' + "\\u006c" * 280 + '"',
    )
    for name in odd:
        for shape in ("{%s:1}", '{"i":1,%s:2}', '{%s:1,"i":2}', '{%s:1,"\\u0069":2}', '{"\\u0069":2,%s:1}'):
            both = Compared(columns)
            both.check([(shape % name).encode(), b'{"\\u0069":1}', (shape % name).encode()])
            both.check([b'{"\\u0069":1}', (shape % name).encode(), b'{"\\\\u0069":"x"}'])


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_batches_of_any_size(rows: int) -> None:
    texts = JsonTexts(random.Random(rows))
    assert Compared(FLAT).check([texts.record(FLAT) for _ in range(rows)]).certain == rows


def test_every_row_is_left_over_or_every_second_one() -> None:
    bad, good, unsure = b'{"i":"x"}', b'{"i":1}', b'{"i":1,"i":2}'
    both = Compared([("i", BIGINT)])
    assert both.check([bad] * 5) == Fates(bad=5)
    assert both.check([unsure] * 5) == Fates(left=5)
    assert both.check([good, unsure] * 50 + [bad]) == Fates(certain=50, left=50, bad=1)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_record_that_breaks_off_anywhere_leaves_nothing_to_the_next_one(name: str) -> None:
    """Whether its columns are read or not: the next one would be left over, or have a value of this one."""
    columns = SCHEMAS[name]
    texts = JsonTexts(random.Random(7))
    good = texts.record(columns)
    reads: tuple[Columns, ...] = (columns, columns[:1], columns[1:], ())
    for read in reads:
        values: list[bytes | None] = [good]
        for _ in range(60):
            broken = texts.record(columns)
            values += [broken[: random.Random(len(values)).randrange(len(broken))], good]
        fates = Compared(columns, read).check(values)
        assert (fates.certain, fates.left) == (61, 0)


def test_a_value_with_a_null_in_each_place_of_a_byte_of_the_bitmap() -> None:
    values: list[bytes | None] = [b'{"v":%s}' % (b"null" if row >> 3 & 1 << (row & 7) else b"5") for row in range(2048)]
    Compared([("v", BIGINT)]).check(values)


def test_long_strings_need_several_buffers() -> None:
    values: list[bytes | None] = [json.dumps({"s": letter * 5000}).encode() for letter in "abcdé\n" * 20]
    assert Compared([("s", STRING)]).check(values).certain == 120


class InMemory:
    """Messages whose values are in memory, and nowhere else."""

    def __init__(self, values: list[bytes | None]) -> None:
        self._there = NativeValues(values)
        self.memory = ValueMemory(self._there.addresses, self._there.lengths, len(values))

    @property
    def values(self) -> list[bytes | None]:
        raise AssertionError("nobody asks for objects")


VALUES: Final[list[bytes | None]] = [b'{"i":1}', b"{", b'{"i":2,"i":3}', None, b'{"i":4,"x":0}']


@pytest.mark.parametrize("unknown", [UnknownFields.SKIP, UnknownFields.FAIL])
def test_a_decoder_reads_values_where_they_are(monkeypatch: pytest.MonkeyPatch, unknown: UnknownFields) -> None:
    class Loaded:
        free = Compared([("i", BIGINT)]).certain.library

    monkeypatch.setattr("tidegate.formats.kinds.json.reader.loaded", Loaded)
    decoder = JsonDecoder([("i", BIGINT)], options=FormatOptions(unknown_fields=unknown))
    found = decoder.decode(InMemory(VALUES))  # type: ignore[arg-type]  # it has what is asked for
    assert found.frame.equals(decoder.decode_values(VALUES).frame)
    assert found.failures == decoder.decode(messages_of(VALUES)).failures


@pytest.mark.parametrize("columns", [[("i", BIGINT)], [("m", map_of(INT, STRING)), ("i", BIGINT)]])
def test_values_become_objects_where_the_library_or_a_type_is_missing(
    monkeypatch: pytest.MonkeyPatch, columns: Columns
) -> None:
    class Held(InMemory):
        values = VALUES

    monkeypatch.setattr("tidegate.formats.kinds.json.reader.loaded", lambda: None)
    found = JsonDecoder(columns).decode(Held(VALUES))  # type: ignore[arg-type]  # it has what is asked for
    assert found.frame["i"].to_list() == [1, 3, 4]
    assert [failure.row for failure in found.failures] == [1, 3]
