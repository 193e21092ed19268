"""Files against the JSON Schema of `tidegate schema`, by a validator as an editor has one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tidegate.config.draft import SAMPLE
from tidegate.config.reference import derive_json_schema

ROOT = Path(__file__).resolve().parents[2]


class EditorLoader(yaml.SafeLoader):
    """Reads YAML 1.2, as editors do: `on` and times are text, and only `true` and `false` are booleans."""


def _is_of_1_2(first: str, tag: str) -> bool:
    return tag != "tag:yaml.org,2002:timestamp" and (first in "tTfF" or tag != "tag:yaml.org,2002:bool")


EditorLoader.yaml_implicit_resolvers = {
    first: [one for one in found if _is_of_1_2(first, one[0])]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@cache
def validator() -> Draft202012Validator:
    """That of the schema, which is made once for all files."""
    return Draft202012Validator(derive_json_schema())


def schema_errors(text: str) -> list[str]:
    """What an editor underlines in a file: it knows nothing of variables."""
    return [f"{error.json_path}: {error.message}" for error in validator().iter_errors(yaml.load(text, EditorLoader))]


def test_the_json_schema_is_one() -> None:
    Draft202012Validator.check_schema(derive_json_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_every_example_passes_the_json_schema(path: Path) -> None:
    assert schema_errors(path.read_text(encoding="utf-8")) == []


def test_the_sample_passes_the_json_schema() -> None:
    assert schema_errors(SAMPLE) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("parallelism: 2", "parallelism: two"),
        ("parallelism: 2", "parallelism: 0"),
        ("interval: 1s", "interval: 1"),
        ("name: orders-per-customer", "name: -orders"),
        ("format: json", "format: xml"),
        ("version: 1", "version: 1\nverzion: 2"),
    ],
)
def test_what_the_file_must_not_say_does_not_pass_the_json_schema(old: str, new: str) -> None:
    assert old in SAMPLE
    assert schema_errors(SAMPLE.replace(old, new, 1)) != []


def test_any_number_word_or_name_may_be_a_variable_to_the_json_schema() -> None:
    for old, new in {"parallelism: 2": "${SLOTS}", "interval: 1s": "${X:1s}", "format: json": "${X}"}.items():
        assert schema_errors(SAMPLE.replace(old, f"{old.partition(':')[0]}: {new}", 1)) == []


VARIABLES = """
version: ${VERSION}
name: ${NAME}
strict: ${STRICT:false}
kafka: {}
checkpoints: {directory: "${DIRECTORY}", unaligned: "${UNALIGNED}"}
restart: {give_up_after: "${GIVE_UP}"}
sources:
  orders: {topic: o, schema: {id: bigint}, start: {0: "${START}"}, written_as: {timestamps: "${T}"}}
steps:
  - {name: last, from: orders, key: id, keep: {by: n, n: "${N}", emit: "${E}"}, state: "${STATE}"}
  - {name: sums, from: orders, key: id, aggregate: {n: count(*)}, emit: "${E:each}", ttl: "${TTL:30d}", late: "${L}"}
  - {name: more, from: orders, key: id, aggregate: {n: count(*)}, emit: {every: "${E}"}, ttl: {event_time: "${TTL}"}}
sinks: {out: {from: sums, topic: out, headers: {pass: "${PASS}"}, schema: {version: "${V}"}}}
dead_letters: {topic: dead, max_per_minute: "${M:100}"}
tests: [{name: one, bad_records: "${B}", late: {sums: "${L}"}, expect: {out: {set: [{partition: "${P}"}]}}}]
"""


def test_a_number_a_word_or_a_name_may_be_a_variable_in_whatever_form() -> None:
    assert schema_errors(VARIABLES) == []
    for wrong in ("strict: maybe", "name: -x"):
        word = wrong.partition(":")[0]
        text = "\n".join(wrong if line.startswith(f"{word}:") else line for line in VARIABLES.splitlines())
        assert schema_errors(text) != []
    assert schema_errors(VARIABLES.replace('ttl: "${TTL:30d}"', "ttl: often")) != []
    assert schema_errors(VARIABLES.replace('max_per_minute: "${M:100}"', "max_per_minute: many")) != []


def test_a_value_that_looks_like_two_of_its_forms_passes_the_json_schema() -> None:
    """`{file: order.avsc}` is where a schema is, and could be a column with that name."""
    source = "sources: {orders: {topic: orders, format: avro, schema: {file: order.avsc}}}"
    rest = "version: 1\nname: o\nkafka: {}\ncheckpoints: {directory: /x}\nsinks: {out: {from: orders, topic: x}}\n"
    assert schema_errors(rest + source) == []
