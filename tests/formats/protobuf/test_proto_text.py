"""Text of `.proto` files: what is compiled, where imports are found, and what a user is told."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2

from tests.formats.protobuf.any_protobuf import file_of, text_of
from tidegate.checks.registry import Ask, resolve_schemas
from tidegate.config.load import parse_pipeline
from tidegate.datatypes import BIGINT, BINARY, INT, STRING, DataType
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.kinds.protobuf import FORMAT, compiler
from tidegate.formats.kinds.protobuf.compiler import compile_text
from tidegate.formats.schemas import SchemaKind, SchemaText, is_serialized

ORDER = """\
edition = "2023";
package shop;
import "google/type/date.proto";
import "confluent/meta.proto";
import "shop/customer.proto";
message Order {
  int64 id = 1 [(confluent.field_meta).doc = "unique"];
  google.type.Date day = 2;
  Customer customer = 3;
}
"""
CUSTOMER = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
DATE = DataType("struct", fields=(("year", INT), ("month", INT), ("day", INT)))
COLUMNS = {"id": BIGINT, "day": DATE, "customer": DataType("struct", fields=(("name", STRING),))}


def problems_of(directory: Path, file: str = "protos/shop/order.proto") -> list[str]:
    """What is told of a pipeline in this directory that names a file, without the directory."""
    pipeline = f"""\
version: 1
name: p
kafka: {{bootstrap.servers: localhost:9092}}
checkpoints: {{directory: file:///nowhere}}
sources:
  orders: {{topic: orders, format: protobuf, schema_id: none, schema: {{file: {file}}}}}
sinks:
  out: {{from: orders, topic: out}}
"""
    loaded = resolve_schemas(parse_pipeline(pipeline, str(directory / "p.yaml"), {}), Ask.COPY)
    return [f"{one.path}: {one.message}; {one.remedy}".replace(f"{directory}/", "") for one in loaded.problems]


def write(directory: Path, **files: str) -> None:
    for name, content in files.items():
        path = directory / "protos" / "shop" / f"{name}.proto"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def test_googles_own_files_compile_to_the_descriptors_that_its_library_has() -> None:
    root = Path(str(grpc_tools.__file__)).parent / "_proto"
    for name in ("api", "struct", "wrappers"):
        file = f"google/protobuf/{name}.proto"
        *_, found = compile_text((root / file).read_bytes(), directories=[root])
        library = descriptor_pb2.FileDescriptorProto()
        import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(library)
        found.name = library.name
        assert found == library


def test_imports_are_found_next_to_the_file_and_above_it_and_those_that_registries_have_everywhere(
    tmp_path: Path,
) -> None:
    write(tmp_path, order=ORDER, customer=CUSTOMER)
    folder = tmp_path / "protos" / "shop"
    schema = FORMAT.read_schema(ORDER.encode(), [folder, folder.parent, tmp_path])
    assert FORMAT.schema_columns(FORMAT.select_message(schema, "")) == COLUMNS
    assert [name for name, _ in schema.references] == ["shop/customer.proto"]
    assert problems_of(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"order": ORDER.replace("= 1 [", "= 1 ]")},
            'line 7, column 16: Expected ";"; correct the file',
        ),
        (
            {"customer": CUSTOMER.replace("string", "text")},
            'shop/customer.proto, line 1, column 53: "text" is not defined',
        ),
        (
            {"order": ORDER.replace("shop/customer", "shop/client")},
            'line 5, column 1: Import "shop/client.proto" was not found or had errors; line 9, column 3: "Customer" ',
        ),
    ],
)
def test_an_error_has_its_line_and_column(tmp_path: Path, changes: dict[str, str], told: str) -> None:
    write(tmp_path, **{"order": ORDER, "customer": CUSTOMER, **changes})
    (problem,) = problems_of(tmp_path)
    place = "sources.orders.schema.file: protos/shop/order.proto cannot be used: "
    assert problem.replace("protos/shop/customer", "shop/customer").startswith(place + told)


def test_a_missing_import_is_told_where_it_was_looked_for(tmp_path: Path) -> None:
    write(tmp_path, order=ORDER)
    (problem,) = problems_of(tmp_path)
    assert problem.endswith("in the directory of the file and in those above it, up to that of the pipeline file")


def test_a_file_outside_of_the_pipelines_directory_finds_what_is_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, order=ORDER.replace("shop/customer", "customer"), customer=CUSTOMER)
    (tmp_path / "elsewhere").mkdir()
    assert problems_of(tmp_path / "elsewhere", f"{tmp_path}/protos/shop/order.proto") == []


def test_without_the_extra_the_refusal_names_it_and_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "COMPILER", "no_such_package")
    with pytest.raises(FormatRefusal, match="the compiler is not installed") as caught:
        FORMAT.read_schema(CUSTOMER.encode())
    assert caught.value.remedy == (
        "`pip install 'tidegate[proto]'` where the daemon and `validate` run, or compile it: "
        "`protoc --include_imports --descriptor_set_out=order.desc order.proto`"
    )


# -- texts of the registry ---------------------------------------------------------------------------------------------

TOP = 'syntax = "proto3"; package t; import "a.proto"; import "b.proto"; message R { A a = 1; B b = 2; }'
A = 'syntax = "proto3"; package t; import "b.proto"; message A { B b = 1; }'
B = file_of({"B": [("x", "bytes")]}, name="b.proto")


def schema_of(main: str, *references: tuple[str, SchemaText]) -> SchemaText:
    return SchemaText(SchemaKind.PROTOBUF, main, references, id=7)


def test_a_registry_may_have_texts_and_descriptors_that_import_each_other() -> None:
    b = ("b.proto", text_of(B, 0))
    found = FORMAT.compile_schema(schema_of(TOP, ("a.proto", schema_of(A, b)), b))
    struct = DataType("struct", fields=(("x", BINARY),))
    assert FORMAT.schema_columns(FORMAT.select_message(found, "")) == {
        "a": DataType("struct", fields=(("b", struct),)),
        "b": struct,
    }
    assert (found.id, is_serialized(found.text)) == (7, True)
    assert all(is_serialized(one.text) for _, one in found.references)
    assert FORMAT.compile_schema(found) is found


@pytest.mark.parametrize(
    ("main", "references"),
    [
        ("message", ()),
        ('syntax = "proto3"; import "../a.proto"; message R { int32 x = 1; }', (("../a.proto", schema_of(A)),)),
    ],
)
def test_what_cannot_be_compiled_is_left_as_it_is_and_logged(
    main: str, references: Sequence[tuple[str, SchemaText]], caplog: pytest.LogCaptureFixture
) -> None:
    schema = schema_of(main, *references)
    assert FORMAT.compile_schema(schema) is schema
    assert "schema 7 of the registry cannot be compiled: " in caplog.text
