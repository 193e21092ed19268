"""Answers as columns: strict, one row at a time, by the rules of JSON sources (`formats/kinds/json/reader.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder
from tidegate.formats.kinds.json.types import convert

SHOWN_MAX: Final = 60
_HALF: Final = re.compile("[\ud800-\udfff]")
_PLACE: Final = re.compile(r"at `\$\.([^.`\[]+)")


class DictDecoder:
    """Dicts of the user's code. Every declared column must be in them; what else is in them is left out."""

    def __init__(self, declared: Columns, output: Columns, what: str) -> None:
        """`what` names the function in messages."""
        self._declared = dict(declared)
        self._names = frozenset(self._declared)
        self._what = what
        self._decoder = JsonDecoder(declared, output, _convert)

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Rows of the good answers in order, and the bad ones. None is a row of NULLs."""
        values: list[Any] = []
        wrong: dict[int, str] = {}
        for row, answer in enumerate(answers):
            if answer is None:
                values.append({})
                continue
            if not isinstance(answer, Mapping):
                wrong[row] = f"{self._what} gave {_shown(answer)}: return a dict, or None for NULLs"
            elif not self._names <= answer.keys():
                names = ", ".join(f"`{name}`" for name in self._declared if name not in answer)
                wrong[row] = f"{self._what} gave a dict without {names}: return every column of `output`, None for NULL"
            values.append({} if row in wrong else answer)
        try:
            decoded = self._decoder.decode_values(values)  # whatever the decoder converts
        except UnicodeEncodeError:  # of a column as a whole
            for row, value in enumerate(values):
                if _has_half_characters([value[name] for name in self._declared if name in value]):
                    values[row] = {}
                    wrong[row] = (
                        f"{self._what} gave a text with half a character, which no text can hold: {_shown(value)}; "
                        "return whole ones, for instance text.encode('utf-8', 'replace').decode()"
                    )
            decoded = self._decoder.decode_values(values)
        return self._explained(decoded, answers, wrong)

    def _explained(self, decoded: Decoded, answers: Sequence[object], wrong: Mapping[int, str]) -> Decoded:
        """With the column, the value and a remedy in each failure."""
        failures = [self._explain(one, answers[one.row]) for one in decoded.failures]
        frame = decoded.frame
        if wrong:
            failed = {one.row for one in failures}
            kept = [row for row in range(len(answers)) if row not in failed]
            frame = frame[[place for place, row in enumerate(kept) if row not in wrong]]
            failures += [RecordFailure(row, FailureKind.WRONG_TYPE, message) for row, message in wrong.items()]
            failures.sort(key=lambda one: one.row)
        return Decoded(frame, failures)

    def _explain(self, failure: RecordFailure, answer: object) -> RecordFailure:
        assert isinstance(answer, Mapping)
        place = _PLACE.search(failure.message)
        name = "" if place is None else place[1]
        kind: DataType | None = self._declared.get(name)
        if kind is None:
            return failure
        message = (
            f"{self._what} gave {_shown(answer.get(name))} for `{name}`, which is {kind}: return a value of that type, "
            "or change `output`"
        )
        return RecordFailure(failure.row, failure.kind, f"{message} ({failure.message})")


class JsonAnswerDecoder:
    """Bodies of HTTP answers. A field that is missing is NULL; None is a row of NULLs."""

    def __init__(self, declared: Columns, output: Columns) -> None:
        self._decoder = JsonDecoder(declared, output)

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Rows of the good answers in order, and the bad ones."""
        bodies = [b"{}" if answer is None else answer for answer in answers]
        decoded = self._decoder.decode_values(bodies)  # type: ignore[arg-type]  # what the target gives is bytes
        failures = [
            msgspec.structs.replace(one, message=f"the server answered {_body(bodies[one.row])}: {one.message}")
            for one in decoded.failures
        ]
        return Decoded(decoded.frame, failures)


def _has_half_characters(value: object) -> bool:
    """Whether a lone surrogate is anywhere in it, as `json.loads` makes of one half of an emoji."""
    match value:
        case str():
            return _HALF.search(value) is not None
        case Mapping():
            return any(_has_half_characters(one) for pair in value.items() for one in pair)
        case list() | tuple() | set() | frozenset():
            return any(map(_has_half_characters, value))
        case _:
            return False


def _convert(record: type[msgspec.Struct]) -> Decode:
    return lambda answer: msgspec.convert(answer, record, dec_hook=convert)


def _body(answer: object) -> str:
    """The beginning of it, so that nobody takes what a server has said for what is in the record."""
    assert isinstance(answer, bytes)
    return _shown(answer[: SHOWN_MAX + 1].decode("utf-8", "backslashreplace"))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
