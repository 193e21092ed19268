"""Values of keys of steps: upgrade directives (`was`, `state`), `emit`, `ttl` and `select`.

An upgrade directive is about state of an older definition of a step. `was: sums`, or `was: {step: sums, columns:
{net_total: net}}`. `state: keep` or `state: reset`; with a note, `state: {keep: "why, and when"}`, which may also have
`drop` and `defaults`. Their effect is decided in `coordinator/upgrade.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Discriminator, Field, Tag, model_validator

from tidegate.config.fields.base import Settings
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import (
    Column,
    ExpressionText,
    Keys,
    ValueCheck,
    check_below,
    check_column,
    check_columns,
    check_step_name,
    choice,
    choice_or,
    describe_value,
    duration,
    refusal,
    require_text,
)
from tidegate.config.fields.units import render_duration

KEEP: Final = "keep"
RESET: Final = "reset"
NOTE_MAX: Final = 500
_VERBS: Final = (KEEP, RESET)
_KEYS: Final = (*_VERBS, "drop", "defaults")
_WAS_REMEDY: Final = "write the former name, or {step: former_name, columns: {new: old}}"
_STATE_REMEDY: Final = 'write keep, reset, {keep: "why, and when"} or {reset: "why, and when"}'


class Was(msgspec.Struct, frozen=True):
    """Former names of a step and of columns of its state."""

    step: str = ""
    columns: dict[str, str] = {}
    """Current name -> former name."""


class DirectiveVerb(msgspec.Struct, frozen=True):
    """The directive for existing state."""

    verb: str = ""
    """`keep`, `reset`, or empty."""
    note: str = ""
    drop: tuple[str, ...] = ()
    """Columns of the state to drop."""
    defaults: dict[str, Any] = {}
    """Values of new columns in existing rows."""


def _was(value: object) -> Was:
    if not isinstance(value, Mapping):
        return Was(check_step_name(value))
    for key in value:
        if key not in ("step", "columns"):
            raise refusal("unknown key", derive_suggestion(str(key), ("step", "columns")), at=str(key))
    if not value:
        raise refusal("the mapping is empty", _WAS_REMEDY)
    columns = value.get("columns", {})
    if not isinstance(columns, Mapping):
        raise refusal(f"expected a mapping, got {describe_value(columns)}", "write {new: old}", at="columns")
    if "columns" in value and not columns:
        raise refusal("the mapping is empty", "write {new: old}", at="columns")
    named = {check_column(new): check_column(old) for new, old in columns.items()}
    for new, old in named.items():
        if new == old:
            raise refusal(f"`{new}` is its name already", "write {new: old}, or remove it", at="columns")
        if list(named.values()).count(old) > 1:
            raise refusal(f"two columns were `{old}`", "one of them is new: remove it here", at="columns")
    return Was(check_below("step", check_step_name, value["step"]) if "step" in value else "", named)


def _state(value: object) -> DirectiveVerb:
    if not isinstance(value, Mapping):
        text = require_text(value, "keep or reset", _STATE_REMEDY)
        if text not in _VERBS:
            raise refusal(
                f"`{text[:60]}` is not one of the choices", derive_suggestion(text, _VERBS, otherwise=_STATE_REMEDY)
            )
        return DirectiveVerb(text)
    for key in value:
        if key not in _KEYS:
            raise refusal("unknown key", derive_suggestion(str(key), _KEYS), at=str(key))
    verbs = [verb for verb in _VERBS if verb in value]
    if len(verbs) > 1:
        raise refusal("keep and reset are given", "a state continues or begins empty: keep one of them", at=RESET)
    if not value:
        raise refusal("the mapping is empty", _STATE_REMEDY)
    verb = verbs[0] if verbs else ""
    for key in ("drop", "defaults"):
        if verb == RESET and key in value:
            raise refusal(f"`reset` removes the whole state, so `{key}` has no effect", f"remove `{key}`", at=key)
    note = ""
    if verb:
        note = check_below(verb, _note, value[verb])
    drop = check_below("drop", check_columns, value["drop"]) if "drop" in value else ()
    return DirectiveVerb(verb, note, drop, _defaults(value.get("defaults", {})))


def _note(value: object) -> str:
    note = require_text(value, "a note", "write why and when: a directive is applied once for each note")
    if len(note) > NOTE_MAX:
        raise refusal(f"the note has {len(note)} characters", f"at most {NOTE_MAX}")
    return note


def _defaults(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refusal(f"expected a mapping, got {describe_value(value)}", "write {column: value}", at="defaults")
    return {check_column(column): _plain(item) for column, item in value.items()}


def _plain(value: Any) -> Any:
    """Converts to plain numbers, because directives are part of the plan."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(value) if isinstance(value, int) else float(value)


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_WAS: Final = ValueCheck(
    _was,
    {
        "anyOf": [
            _TEXT,
            {"type": "object", "properties": {"step": _TEXT, "columns": _TEXTS}, "additionalProperties": False},
        ]
    },
)
_STATE: Final = ValueCheck(
    _state,
    {
        "anyOf": [
            {"type": "string", "enum": list(_VERBS)},
            {
                "type": "object",
                "properties": {
                    KEEP: _TEXT,
                    RESET: _TEXT,
                    "drop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
                    "defaults": {"type": "object"},
                },
                "additionalProperties": False,
            },
        ]
    },
)
SourceWas = Annotated[
    Annotated[str, ValueCheck(check_step_name, _TEXT)] | None,
    Field(description="Former name of a renamed source: it continues at the positions of that name."),
]
StepWas = Annotated[
    Annotated[Was, _WAS] | None,
    Field(
        description="Former name of a renamed step: its state continues under the new name. Or `{step: "
        "former_name, columns: {new: old}}` with former names of columns in its state; either part may be "
        "missing. It can be removed after the first checkpoint."
    ),
]
StepState = Annotated[
    Annotated[DirectiveVerb, _STATE] | None,
    Field(
        description="For a step whose state has another meaning now: `keep` continues with the existing state, "
        "`reset` starts with empty state. A directive is applied once: for the next change write a note, `{keep: "
        '"why, and when"}`. With it, or alone: `drop: [column]` gives up columns of the state, `defaults: '
        "{column: value}` fills new ones in existing rows."
    ),
]


# -- `emit`: a word, or `{every: 10s}` ---------------------------------------------------------------------------------

EACH: Final = "each"
LATEST: Final = "latest"
ON_CLOSE: Final = "on close"


class EmitEvery(msgspec.Struct, frozen=True):
    """Early results of a window at this interval of event time."""

    every_ms: int


EmitMode = Annotated[
    str | EmitEvery,
    choice_or(
        (EACH, LATEST, ON_CLOSE),
        "every",
        duration("1ms", "366d"),
        "10s",
        lambda word, every_ms: word if every_ms is None else EmitEvery(every_ms),
    ),
]


# -- `ttl`: `30d`, `{event_time: 30d}` or `{processing_time: 30d}` -----------------------------------------------------

_CLOCKS: Final = ("event_time", "processing_time")
_TTL_REMEDY: Final = "write 30d, {event_time: 30d} or {processing_time: 30d}"
_DURATION: Final = duration("1s", "365d")


class Ttl(msgspec.Struct, frozen=True):
    """A time to live, measured in event time or processing time."""

    time_ms: int
    processing: bool = False

    @property
    def lasts(self) -> str:
        """The text recorded in the state (`StateShape.serializer`)."""
        return f"{self.time_ms} ms of {'processing' if self.processing else 'event'} time"

    def __str__(self) -> str:
        return f"{render_duration(self.time_ms)} of {'processing' if self.processing else 'event'} time"


def check_ttl(value: object) -> Ttl:
    """Converts a value of a file, or of a declaration in Python. Raises PydanticCustomError (`refusal`)."""
    if not isinstance(value, Mapping):
        return Ttl(_DURATION.check(value))
    for key in value:
        if key not in _CLOCKS:
            raise refusal("unknown key", derive_suggestion(str(key), _CLOCKS), at=str(key))
    if len(value) != 1:
        raise refusal("the mapping needs exactly one key", _TTL_REMEDY)
    ((clock, text),) = value.items()
    return Ttl(check_below(clock, _DURATION.check, text), processing=clock == "processing_time")


_TTL_TEXT: Final = dict(_DURATION.schema)
TtlKind = Annotated[
    Ttl,
    ValueCheck(
        check_ttl,
        {
            "anyOf": [
                _TTL_TEXT,
                *(
                    {
                        "type": "object",
                        "properties": {clock: _TTL_TEXT},
                        "required": [clock],
                        "additionalProperties": False,
                    }
                    for clock in _CLOCKS
                ),
            ]
        },
    ),
]


# -- `select`: new columns, or with `"*": all` the input columns and changes to them -----------------------------------

STAR: Final = "*"
NEW_COLUMNS: Final = "<new columns>"
ALL_COLUMNS: Final = "<all columns>"


class AllColumns(Settings):
    """The columns that arrive, in their order, and what changes of them. Expressions of `add` read the columns as they
    arrive, by their old names, those that `except` leaves out included. A column of `add` whose name is there already
    takes the place of that one; the others come last.
    """

    TITLE: ClassVar[str] = "All columns"
    star: Annotated[str, choice("all"), Field(alias=STAR, description="All columns that arrive.")]
    except_: Annotated[Keys, Field(alias="except", description="Columns that are left out.")] = ()
    rename: Annotated[
        dict[Column, Column], Field(min_length=1, description="New names of columns, `{old: new}`; they stay in place.")
    ] = {}
    add: Annotated[
        dict[Column, ExpressionText], Field(min_length=1, description="Additional columns, by Spark SQL expressions.")
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        """Suggests `add` for a column that is written next to `"*"`."""
        keys = [info.alias or name for name, info in cls.model_fields.items()]
        for key in value:
            if key not in keys:
                near = derive_suggestion(str(key), keys[1:])
                under = f'new columns go under `add`: {{"*": all, add: {{{key}: ...}}}}'
                remedy = near if near.startswith("did") else under
                raise refusal(f'`{str(key)[:60]}` does not go with `"*"`', remedy, at=str(key))
        return value


def _form_of(value: object) -> str:
    """Returns the form of a selection.

    A list or mapping is not an expression: `except: [debug]` implies all other columns.
    """
    if isinstance(value, Mapping):
        parts = [value.get(key) for key in ("except", "rename", "add")]
        starred = STAR in value or any(isinstance(one, list | Mapping) for one in parts)
        return ALL_COLUMNS if starred else NEW_COLUMNS
    return ALL_COLUMNS if isinstance(value, AllColumns) else NEW_COLUMNS


Selection = Annotated[
    Annotated[dict[Column, ExpressionText], Field(min_length=1), Tag(NEW_COLUMNS)]
    | Annotated[AllColumns, Tag(ALL_COLUMNS)],
    Discriminator(_form_of),
]
