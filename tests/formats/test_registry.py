"""The formats that there are, and what holds for each of them."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import polars as pl
import pytest

from tests.depth import DEPTH
from tests.formats.batches import messages_of
from tests.formats.protobuf.any_protobuf import file_of, text_of
from tidegate.datatypes import STRING, Schema
from tidegate.formats import kinds
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Decoded, Format, FormatRefusal, read_settings
from tidegate.formats.record_parts import HEADERS_TYPE
from tidegate.formats.registry import FORMATS, discover_formats
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, SchemaKind, SchemaText

every_format = pytest.mark.parametrize("one", FORMATS.values(), ids=FORMATS)
WRITTEN = [one for one in FORMATS.values() if one.writes]
every_written_format = pytest.mark.parametrize("one", WRITTEN, ids=[one.name for one in WRITTEN])


def test_formats_are_found_by_the_names_of_their_modules() -> None:
    assert {name: one.name for name, one in FORMATS.items()} == {name: name for name in FORMATS}
    assert {"json", "raw"} <= FORMATS.keys()
    assert list(FORMATS) == sorted(FORMATS)


@pytest.mark.parametrize("text", ["", "from tidegate.formats.kinds.json import FORMAT"])
def test_a_module_without_a_format_of_its_name_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "lines.py").write_text(text, "utf-8")
    monkeypatch.setattr(kinds, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{kinds.__name__}.lines", raising=False)
    with pytest.raises(TypeError, match="kinds/lines has no FORMAT whose name is 'lines'"):
        discover_formats()


def test_what_the_daemon_reads_of_formats_loads_no_polars() -> None:
    program = "import sys, tidegate.config.models; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@every_format
def test_no_message_becomes_a_frame_without_rows_and_with_the_columns_that_are_read(one: Format) -> None:
    columns = tuple(one.read_columns(one.fixed_columns or {"value": STRING}).items())
    for output in (columns, columns[:1]):
        decoded = one.decoder(columns, output, NO_OPTIONS, KnownSchemas()).decode(messages_of([]))
        assert isinstance(decoded, Decoded)
        assert dict(decoded.frame.schema) == {name: polars_type(kind) for name, kind in output}
        assert (decoded.frame.height, list(decoded.failures)) == (0, [])


EXTRA: Final = {"cloudevents": ("ce_id", "ce_source", "ce_type")}
"""Columns that a sink of a format needs."""


@every_written_format
def test_a_row_becomes_a_value(one: Format) -> None:
    extra = EXTRA.get(one.name, ())
    frame = pl.DataFrame({"value": ["a", "b"], "k": [1, None], **{name: ["x", "y"] for name in extra}})
    columns = one.written_columns({"value": STRING, **dict.fromkeys(extra, STRING)})
    options = NO_OPTIONS if one.schema_kind is None else FormatOptions(written_schema(one, columns))
    encoded = one.encoder(tuple(columns.items()), options).encode(frame)
    headers = {"headers": polars_type(HEADERS_TYPE)} if one.written_headers(columns, options) else {}
    assert dict(encoded.columns.schema) == {"value": pl.Binary(), **headers}
    assert encoded.columns["value"].null_count() == 0
    assert list(encoded.failures) == []


def written_schema(one: Format, columns: Schema) -> SchemaText:
    """Of the columns, or of a message with one."""
    if one.schema_kind is SchemaKind.PROTOBUF:
        return text_of(file_of({"R": [("value", "string")]}))
    return one.derive_schema(columns, "topic")


@every_format
def test_no_value_makes_a_decoder_raise_and_the_others_keep_their_rows(one: Format) -> None:
    """Which records are bad does not depend on the batch."""
    rnd = random.Random(f"{DEPTH} {one.name}")
    values: list[bytes | None] = [None, b"", b"\n", b"\0" * 9, "é".encode(), b"\xff\xfe"]
    values += [b'{"value":"a"}', b"\x81\xa5value\xa1a", b"\0\0\0\0\x07\x02a", b"a", b'"a"']
    while len(values) < 150 * DEPTH:
        data = bytearray(rnd.choice(values[5:]) or rnd.randbytes(rnd.randrange(20)))
        data[rnd.randrange(len(data) + 1) :] = rnd.choice((rnd.randbytes(1), data[:3], b""))
        values.append(bytes(data))
    columns = tuple(one.read_columns(one.fixed_columns or {"value": STRING}).items())
    decoder = one.decoder(columns, columns, NO_OPTIONS, KnownSchemas())
    whole = decoder.decode(messages_of(values))
    assert isinstance(whole, Decoded)
    assert whole.frame.height + len(whole.failures) == len(values)
    cut = rnd.randrange(len(values))
    first, second = decoder.decode(messages_of(values[:cut])), decoder.decode(messages_of(values[cut:]))
    assert isinstance(first, Decoded)
    assert isinstance(second, Decoded)
    failures = [(one.row, str(one)) for one in first.failures]
    failures += [(one.row + cut, str(one)) for one in second.failures]
    assert [(one.row, str(one)) for one in whole.failures] == failures
    if one.fixed_columns is None:  # otherwise offsets begin again
        assert pl.concat([first.frame, second.frame]).equals(whole.frame)


@every_format
def test_sections_of_a_format_are_restored_as_they_were(one: Format) -> None:
    for kind in (one.source_settings, one.sink_settings):
        values = {name: value for name, value in kind().model_dump(mode="json", by_alias=True).items() if value}
        section = kind.model_validate(values)
        options = FormatOptions(settings=section.model_dump(mode="json", by_alias=True, exclude_unset=True))
        assert read_settings(kind, msgspec.json.decode(msgspec.json.encode(options), type=FormatOptions)) == section
        assert all(info.description for info in kind.model_fields.values())


@every_format
def test_what_a_format_says_of_itself_fits_where_it_is_printed(one: Format) -> None:
    assert not one.writes.endswith(".")
    assert one.page.endswith(".\n")
    assert not one.page.startswith("#")


def test_only_formats_for_sources_write_nothing() -> None:
    assert [name for name, one in FORMATS.items() if not one.writes] == ["debezium", "debezium-avro"]


def test_columns_that_a_format_cannot_write_are_refused_with_a_remedy() -> None:
    with pytest.raises(FormatRefusal, match="a raw sink writes the column `value`, which does not exist") as caught:
        FORMATS["raw"].written_columns({"a": STRING})
    assert "use json" in caught.value.remedy
