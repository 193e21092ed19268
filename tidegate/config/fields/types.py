"""The kinds of values in a pipeline file, each with its check, its remedy and its JSON Schema."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic_core import CoreSchema, PydanticCustomError, SchemaError, SchemaValidator, core_schema

from tidegate.config.fields.columns import TypeProblem, derive_type
from tidegate.config.fields.secrets import is_secret_key
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.units import (
    MAX_DURATION_MS,
    DurationTooLong,
    derive_duration_ms,
    derive_size_bytes,
    render_duration,
)
from tidegate.datatypes import RESERVED, DataType, is_pattern, is_reserved
from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.storage.open import STORES, scheme_of, suggest_scheme

CONFIG = "config"
"""The pydantic error type of Tidegate's own checks; its context has `message` and `remedy`."""

MAX_NAME_LENGTH = 100
MAX_PATTERN_LENGTH = 500
UNALIGNED_AFTER_MS_MIN, UNALIGNED_AFTER_MS_MAX = 10, 3_600_000
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_OPERATOR_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_GIVE_UP = re.compile(r"([0-9]{1,9}) +in +(\S+)", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)  # eq=False: typing needs hashing by identity
class ValueCheck:
    """Pydantic annotation: one function that fully validates a value, and the JSON Schema for editors."""

    check: Callable[[Any], Any]
    schema: Mapping[str, Any]
    bounds: tuple[str, str] | None = None
    """Lower and upper bound as written, where the schema cannot express them."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


def refusal(message: str, remedy: str = "", at: str = "", column: int = 0) -> PydanticCustomError:
    """Returns an error that pydantic collects with the location of the value.

    `at` is the key below the value, if that is wrong; `column` (from 1) is the position within a single-line text.
    """
    context = {"message": message, "remedy": remedy, "at": at, "column": column}
    return PydanticCustomError(CONFIG, "{message}", context)


def check_below(key: str, check: Callable[[Any], Any], value: object) -> Any:
    """Checks the value at a key of the value being checked; problems are reported at that key."""
    try:
        return check(value)
    except PydanticCustomError as error:
        context = error.context or {}
        raise refusal(**{**context, "at": key}) from error


def describe_value(value: object) -> str:
    """Describes a value for a message, shortened and without secrets."""
    if isinstance(value, SecretStr):
        return "a secret"
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text[:60]}`" + ("..." if len(text) > 60 else "")


def require_text(value: object, what: str, remedy: str = "") -> str:
    """Returns the value as text; numbers and values like `true` are refused rather than converted."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, SecretStr):
        raise refusal(f"expected {what}, got a secret", "${file:...} is for passwords and keys only")
    quote = 'put it in quotes: "..."' if isinstance(value, bool | int | float) else "write one, as text"
    raise refusal(f"expected {what}, got {describe_value(value)}", remedy or quote)


def refusal_of_flag() -> PydanticCustomError:
    """Returns the error for a secret that YAML has read as true or false, without showing which."""
    return refusal("expected a secret, got a boolean", 'put it in quotes: "..."')


def choice(*choices: str) -> ValueCheck:
    """Accepts one of a few names."""
    what = "one of " + ", ".join(choices) if choices[1:] else choices[0]

    def suggested(given: str) -> str:
        return derive_suggestion(given, choices) if choices[1:] else f"only `{choices[0]}` is supported"

    def check(value: object) -> str:
        text = require_text(value, what, suggested(""))
        if text in choices:
            return text
        raise refusal(f"`{text[:60]}` is not one of the choices", suggested(text))

    return ValueCheck(check, {"type": "string", "enum": list(choices)})


def choice_or(
    choices: Sequence[str], key: str, inner: ValueCheck, example: str, make: Callable[[str, Any], Any]
) -> ValueCheck:
    """A value that is one of `choices`, or `{key: value}` with an inner value.

    `make` gets the choice and None, or the key and the checked inner value.
    """
    what = f"{', '.join(choices)} or {{{key}: {example}}}"
    remedy = f"write {what}"

    def check(value: object) -> Any:
        if isinstance(value, Mapping):
            others = [str(one) for one in value if one != key]
            if others or not value:
                problem = "unknown key" if others else "the mapping is empty"
                raise refusal(problem, remedy, at=others[0] if others else "")
            return make(key, check_below(key, inner.check, value[key]))
        text = require_text(value, what, remedy)
        if text not in choices:
            near = derive_suggestion(text, choices)
            raise refusal(
                f"`{text[:60]}` is not one of the choices", near if near.startswith("did you mean") else remedy
            )
        return make(text, None)

    mapping = {
        "type": "object",
        "properties": {key: dict(inner.schema)},
        "required": [key],
        "additionalProperties": False,
    }
    return ValueCheck(check, {"anyOf": [{"type": "string", "enum": list(choices)}, mapping]})


def _duration(value: object) -> int:
    remedy = "write a number with its unit, for instance 500ms, 10s, 1m30s, 2h"
    if isinstance(value, bool | int | float):
        raise refusal(f"the duration {describe_value(value)} has no unit", remedy)
    text = require_text(value, "a duration", remedy)
    try:
        return derive_duration_ms(text)
    except DurationTooLong as error:
        raise refusal(str(error), f"use at most {render_duration(MAX_DURATION_MS)}") from error
    except ValueError as error:
        raise refusal(str(error), remedy) from error


def duration(low: str, high: str) -> ValueCheck:
    """Accepts a text with units, as milliseconds within bounds (both inclusive)."""
    low_ms, high_ms = derive_duration_ms(low), derive_duration_ms(high)

    def check(value: object) -> int:
        milliseconds = _duration(value)
        if not low_ms <= milliseconds <= high_ms:
            raise refusal(f"{describe_value(value)} is out of range", f"use {low} to {high}")
        return milliseconds

    schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$", "examples": ["500ms", "10s", "1m30s"]}
    return ValueCheck(check, schema, (low, high))


def size(low: str, high: str) -> ValueCheck:
    """Accepts a text with a unit, as bytes within bounds (both inclusive)."""
    low_bytes, high_bytes = derive_size_bytes(low), derive_size_bytes(high)
    remedy = "write a number with its unit, for instance 64MiB, 2GiB"

    def check(value: object) -> int:
        if isinstance(value, bool | int | float):
            raise refusal(f"the size {describe_value(value)} has no unit", remedy)
        try:
            size_bytes = derive_size_bytes(require_text(value, "a size", remedy))
        except ValueError as error:
            raise refusal(str(error), remedy) from error
        if not low_bytes <= size_bytes <= high_bytes:
            raise refusal(f"{describe_value(value)} is out of range", f"use {low} to {high}")
        return size_bytes

    schema = {"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|TiB)$", "examples": ["64MiB", "2GiB"]}
    return ValueCheck(check, schema, (low, high))


UNQUOTED: Final = "a value in quotes is a text: write it without quotes, a variable outside of braces and brackets"


def integer(low: int, high: int) -> ValueCheck:
    """Accepts a whole number within bounds (both inclusive)."""
    remedy = f"use {low} to {high}" if low < high else f"only {low} is supported"

    def check(value: object) -> int:
        if isinstance(value, str) and value.isdecimal():
            raise refusal(f"expected a whole number, got the text {describe_value(value)}", UNQUOTED)
        if isinstance(value, bool) or not isinstance(value, int):
            raise refusal(f"expected a whole number, got {describe_value(value)}", remedy)
        if not low <= value <= high:
            raise refusal(f"{describe_value(value)} is out of range", remedy)
        return int(value)

    return ValueCheck(check, {"type": "integer", "minimum": low, "maximum": high})


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise refusal(
            f"expected true or false, got {describe_value(value)}",
            UNQUOTED if value in ("true", "false") else "write true or false, without quotes",
        )
    return value


def _name(pattern: re.Pattern[str], what: str, remedy: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        text = require_text(value, what)
        if len(text) > MAX_NAME_LENGTH:
            raise refusal(f"the name has {len(text)} characters", f"at most {MAX_NAME_LENGTH}")
        if not pattern.fullmatch(text):
            raise refusal(f"`{text[:60]}` is not a name", remedy)
        return text

    return check


def _names(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    names = [require_text(item, "a name or a list of names") for item in items]
    if not names:
        raise refusal("the list is empty", "name at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise refusal(f"`{twice[0]}` is in the list twice", "remove one")
    return tuple(names)


def check_topic(value: object) -> str:
    """Checks the name of a topic."""
    text = require_text(value, "a topic", "write one name" if isinstance(value, Mapping | list) else "")
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise refusal(f"`{text[:60]}` is not a topic name", "Kafka takes 1 to 249 letters, digits, `.`, `_` and `-`")
    return text


def _pattern(value: object) -> str:
    text = require_text(value, "a regular expression", "for instance orders-.*")
    if len(text) > MAX_PATTERN_LENGTH:
        raise refusal(f"the pattern has {len(text)} characters", f"at most {MAX_PATTERN_LENGTH}")
    try:
        compile_pattern(text)
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip()
        raise refusal(f"`{text[:60]}` is not a regular expression: {reason}", "for instance orders-.*") from error
    return text


@functools.cache
def compile_pattern(pattern: str) -> SchemaValidator:
    """Returns a validator of texts that a regular expression matches as a whole, in time proportional to the text.

    Python's own engine tries every way in which a pattern can match, which can take forever. Raises SchemaError.
    """
    return SchemaValidator(core_schema.str_schema(pattern=f"^(?:{pattern})$"))


def check_topics(value: object) -> tuple[str, ...]:
    """Checks names of topics, each listed once."""
    return tuple(check_topic(name) for name in _names(value))


HOST_REMEDY: Final = "each part of a host between dots has 1 to 63 characters: is there a double dot?"


def can_be_host(text: str) -> bool:
    """Tells whether a host name can be looked up: `a..b` and `a b` fail with something other than a network error."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return text.isprintable() and " " not in text


def check_address(value: object, example: str, login_remedy: str) -> str:
    """Checks the address of an HTTP server, which has no login in it."""
    remedy = f"for instance {example}"
    text = require_text(value, "an address", remedy).rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise refusal(f"{describe_value(value)} is not an address", remedy) from error
    if "@" in text:
        raise refusal("the address has a user in it", login_remedy)
    if usable and not can_be_host(parts.hostname or ""):
        raise refusal(f"{describe_value(value)} is not an address", HOST_REMEDY)
    if not usable or parts.query or parts.fragment or any(ord(one) <= 32 or ord(one) == 127 for one in text):
        raise refusal(f"{describe_value(value)} is not an address", remedy)
    return text


def _host(value: object) -> str:
    text = require_text(value, "a host name or address")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,253}", text):
        raise refusal(f"`{text[:60]}` is not a host", "for instance 127.0.0.1 or 0.0.0.0")
    if not can_be_host(text):
        raise refusal(f"`{text[:60]}` is not a host", HOST_REMEDY)
    return text


_UNREADABLE = "choose another name; a field of a record has to be renamed at its producer"


def check_column(value: object) -> str:
    """Checks the name of a column."""
    if value == "":
        raise refusal("the name of a column is empty", "give it a name; a field with an empty name cannot be a column")
    text = require_text(value, "a column name")
    if is_reserved(text):
        raise refusal(
            f"the column `{text[:60]}` begins with `{RESERVED}`", "such names belong to Tidegate: choose another"
        )
    if "${" in text:
        raise refusal(f"`{text[:60]}` is not a column name", "variables are replaced in values, not in keys")
    if is_pattern(text):
        raise refusal(f"the column `{text[:60]}` has a name that selects several columns", _UNREADABLE)
    if len(text) > MAX_NAME_LENGTH:
        raise refusal(f"the column name has {len(text)} characters", f"at most {MAX_NAME_LENGTH}")
    if any(character in '"\\' or not character.isprintable() for character in text):
        raise refusal(
            f"the column name {text[:60]!r} has a quote, a backslash or a control character",
            _UNREADABLE,
        )
    return text


def check_columns(value: object) -> tuple[str, ...]:
    """Checks names of columns, each listed once."""
    return tuple(check_column(name) for name in _names(value))


def _type(value: object) -> DataType:
    try:
        return derive_type(require_text(value, "a type", "for instance bigint, string, array<string>"))
    except TypeProblem as error:
        raise refusal(error.message, error.remedy, column=error.column) from error


def _expression(value: object) -> str:
    # `limit: 100` and `flag: true` are also expressions that were written without quotes.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(int(value) if isinstance(value, int) else value)
    return require_text(value, "an expression", "write an expression, for instance `amount >= 100`; NULL is `'null'`")


def _property(value: object) -> str | SecretStr:
    if isinstance(value, SecretStr | str):
        if "\0" in (value.get_secret_value() if isinstance(value, SecretStr) else value):
            raise refusal("the value has a NUL byte", "remove it: readers of the value stop there")
        return value
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise refusal(f"expected a value, got {describe_value(value)}", "property names are written whole: `a.b.c: value`")


def _properties(value: object) -> dict[str, str | SecretStr]:
    if not isinstance(value, Mapping):
        raise refusal(f"expected a mapping of properties, got {describe_value(value)}", "write `name: value` lines")
    found: dict[str, str | SecretStr] = {}
    for name, item in value.items():
        try:
            if isinstance(item, bool) and is_secret_key(name):
                raise refusal_of_flag()
            text = _property(item)
        except PydanticCustomError as error:
            context = error.context or {}
            raise refusal(str(context["message"]), str(context["remedy"]), at=name) from error
        plain = text.get_secret_value() if isinstance(text, SecretStr) else text
        found[name] = SecretStr(plain) if is_secret_key(name) else text
    return found


_EXAMPLE_OF_MOMENT = "for instance 2026-11-01T00:00:00Z"


def derive_timestamp(text: str) -> str:
    """Returns an ISO 8601 instant in its normal form, `2026-11-01T00:00:00Z`. Raises ValueError."""
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    try:
        return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    except OverflowError as error:
        raise ValueError("before the year 1 or after 9999 in UTC") from error


def _moment(text: str, names: str) -> str:
    try:
        return derive_timestamp(text)
    except ValueError as error:
        zone = "; add the time zone, for instance `Z`" if str(error) == "no time zone" else ""
        raise refusal(f"`{text[:60]}` is neither {names} nor a timestamp", f"{_EXAMPLE_OF_MOMENT}{zone}") from error


def _start(value: object) -> str | dict[int, int]:
    if not isinstance(value, Mapping):
        text = require_text(value, "earliest, latest, a timestamp or {partition: offset}", _EXAMPLE_OF_MOMENT)
        return text if text in ("earliest", "latest") else _moment(text, "earliest, latest")
    offsets: dict[int, int] = {}
    for partition, offset in value.items():
        if not re.fullmatch(r"0|[1-9][0-9]{0,5}", partition, re.ASCII):
            raise refusal(f"`{partition[:60]}` is not a partition", "write {0: 17, 1: 4}: partition, then offset")
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
            raise refusal(f"partition {partition}: {describe_value(offset)} is not an offset", "offsets are 0 or more")
        offsets[int(partition)] = int(offset)
    if not offsets:
        raise refusal("the mapping is empty", "write {0: 17, 1: 4}: partition, then offset")
    return offsets


def _until(value: object) -> str:
    text = require_text(value, "never, latest or a timestamp", _EXAMPLE_OF_MOMENT)
    return text if text in ("never", "latest") else _moment(text, "never, latest")


class GiveUpLimit(msgspec.Struct, frozen=True):
    """The crash-loop limit: `failures` failed attempts within `within_ms` end the daemon."""

    failures: int
    within_ms: int


def _give_up(value: object) -> GiveUpLimit:
    remedy = "for instance `20 in 30m`"
    match = _GIVE_UP.fullmatch(require_text(value, "failures and a time", remedy))
    if match is None or int(match[1]) < 1:
        raise refusal(f"{describe_value(value)} is not a number of failures in a time", remedy)
    return GiveUpLimit(int(match[1]), _duration(match[2]))


class Unaligned(msgspec.Struct, frozen=True):
    """The rule for barriers to overtake records; `after_ms` is None for never, 0 for always, otherwise the wait."""

    after_ms: int | None = None

    def __str__(self) -> str:
        if not self.after_ms:
            return "never" if self.after_ms is None else "always"
        return f"after {render_duration(self.after_ms)}"


def _unaligned(value: object) -> Unaligned:
    remedy = "write never, always, or `after` with a duration, for instance `after 5s`"
    text = require_text(value, "never, always or after a time", remedy)
    if text in ("never", "always"):
        return Unaligned(None if text == "never" else 0)
    first, _, limit = text.partition(" ")
    if first != "after" or not limit.strip():
        raise refusal(f"`{text[:60]}` is not one of the choices", remedy)
    milliseconds = _duration(limit.strip())
    if not UNALIGNED_AFTER_MS_MIN <= milliseconds <= UNALIGNED_AFTER_MS_MAX:
        raise refusal(f"{describe_value(limit.strip())} is out of range", "use 10ms to 1h")
    return Unaligned(milliseconds)


def _directory(value: object) -> str:
    text = require_text(value, "a directory", "for instance file:///var/lib/tidegate")
    scheme = scheme_of(text)
    store = STORES.get(scheme)
    if store is None:
        raise refusal(f"`{scheme[:30]}://` is not a supported storage", suggest_scheme(scheme))
    if wrong := store.check(text):
        raise refusal(wrong, f"for instance {store.example}")
    return text


def _directories(value: object) -> tuple[str, ...]:
    return tuple(_directory(item) for item in (value if isinstance(value, list) else [value]))


CODE_FILES_MAX: Final = 100
"""The maximum number of files of `code:`."""


def _code_paths(value: object) -> tuple[str, ...]:
    remedy = "for instance libs/scoring-1.2-py3-none-any.whl"
    items = value if isinstance(value, list) else [value]
    paths = [require_text(item, "a file or a list of files", remedy) for item in items]
    for path in paths:
        if not path.strip() or "\0" in path:
            raise refusal(f"{path[:60]!r} is not a path", remedy)
    if len(paths) > CODE_FILES_MAX:
        raise refusal(f"has more than {CODE_FILES_MAX} files", "put them into one wheel or archive")
    return tuple(paths)


def _file(value: object) -> str:
    text = require_text(value, "a file", "for instance /etc/tidegate/orders.token")
    if not text.startswith("/") or "\0" in text:
        raise refusal(f"{text[:60]!r} is not an absolute path", "for instance /etc/tidegate/orders.token")
    return text


_WORDS = {"type": "string"}
Flag = Annotated[bool, ValueCheck(_flag, {"type": "boolean"})]
_WORD_OR_LIST = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_SCALAR = {"type": ["string", "number", "boolean"]}

PipelineName = Annotated[
    str,
    ValueCheck(
        _name(_PIPELINE_NAME, "a name", "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit"),
        {"type": "string", "pattern": f"^{_PIPELINE_NAME.pattern}$", "maxLength": MAX_NAME_LENGTH},
    ),
]
check_step_name = _name(_OPERATOR_NAME, "a name", "use letters, digits, `-` and `_`, beginning with a letter")
"""Checks the name of a source, step or sink."""


def _other_cluster(value: object) -> ClusterName:
    """Checks the name of a cluster under `clusters`."""
    name = ClusterName(check_step_name(value))
    if name == MAIN_CLUSTER:
        raise refusal(f"`{name}` is the cluster of `kafka:` at the top of the file", "choose another name")
    return name


_NAME_SCHEMA: Final = {"type": "string", "pattern": f"^{_OPERATOR_NAME.pattern}$", "maxLength": MAX_NAME_LENGTH}
StepName = Annotated[str, ValueCheck(check_step_name, _NAME_SCHEMA)]
Cluster = Annotated[
    ClusterName,
    ValueCheck(check_step_name, _NAME_SCHEMA),
    Field(description="The cluster of the topic: `kafka`, or a name under `clusters`."),
]
OtherCluster = Annotated[ClusterName, ValueCheck(_other_cluster, _NAME_SCHEMA)]
Names = Annotated[tuple[str, ...], ValueCheck(_names, _WORD_OR_LIST)]
Topic = Annotated[str, ValueCheck(check_topic, _WORDS)]
Topics = Annotated[tuple[str, ...], ValueCheck(check_topics, _WORD_OR_LIST)]
TopicPattern = Annotated[str, ValueCheck(_pattern, _WORDS)]
Host = Annotated[str, ValueCheck(_host, _WORDS)]
Column = Annotated[str, ValueCheck(check_column, _WORDS)]
Keys = Annotated[tuple[str, ...], ValueCheck(check_columns, _WORD_OR_LIST)]
GroupKeys = Annotated[
    Keys | None,
    Field(description="Column or columns of a step with keys: records with equal values share its state."),
]
MatchingColumns = Annotated[
    dict[Column, Column] | None,
    Field(
        min_length=1,
        description="Columns of the first input, and the columns of the second one that have the same values there: "
        "`{id: order_id}`. NULL matches nothing.",
    ),
]
"""`on`, the keys of steps that match rows of two inputs."""
ColumnType = Annotated[DataType, ValueCheck(_type, {"type": "string", "examples": ["bigint", "array<string>"]})]
StepOutput = Annotated[
    dict[Column, ColumnType] | None,
    Field(
        min_length=1,
        description="Columns with their types: those that an answer of `async` or `http` adds to its row, or all "
        "columns that a step with `python` emits.",
    ),
]
StepRows = Annotated[
    str | None,
    choice("inner", "left", "right", "full", "semi", "anti", "same"),
    Field(
        description="With `join`, `inner` (the default): pairs; `left`, `right`, `full`: also rows of that side, or of "
        "both, that match nothing, once no match can arrive any more; `semi`: left rows that match, once each; `anti`: "
        "left rows that match nothing. With `python` and `per: batch`, `same`: row i of a result belongs to row i of "
        "the batch, and keeps its record and its event time; by default results are new rows without event time."
    ),
]
"""`rows`, which joins and batches of Python steps share: each refuses the choices of the other."""
ExpressionText = Annotated[str, ValueCheck(_expression, _SCALAR)]
Properties = Annotated[
    dict[str, str | SecretStr], ValueCheck(_properties, {"type": "object", "additionalProperties": _SCALAR})
]
Start = Annotated[
    str | dict[int, int],
    ValueCheck(_start, {"anyOf": [_WORDS, {"type": "object", "additionalProperties": {"type": "integer"}}]}),
]
Until = Annotated[str, ValueCheck(_until, _WORDS)]
GiveUpAfter = Annotated[GiveUpLimit, ValueCheck(_give_up, {"type": "string", "pattern": "^[0-9]+ +in +[0-9a-z]+$"})]
UnalignedMode = Annotated[
    Unaligned,
    ValueCheck(
        _unaligned,
        {
            "type": "string",
            "pattern": "^(never|always|after +([0-9]+(ms|s|m|h|d))+)$",
            "examples": ["never", "always", "after 5s"],
        },
    ),
]
File = Annotated[str, ValueCheck(_file, _WORDS)]
CodePaths = Annotated[tuple[str, ...], ValueCheck(_code_paths, _WORD_OR_LIST)]
Directories = Annotated[tuple[str, ...], ValueCheck(_directories, _WORD_OR_LIST)]
Directory = Annotated[
    str,
    ValueCheck(_directory, {"type": "string", "examples": [store.example for store in dict.fromkeys(STORES.values())]}),
]
