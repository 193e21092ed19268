"""Converts answers to columns, strictly and row by row, by the rules of JSON sources
(`formats/kinds/json/reader.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder
from tidegate.formats.kinds.json.types import convert
from tidegate.user_code.failure import name_error

SHOWN_MAX: Final = 60
_PLACE: Final = re.compile(r"(?:at|in) `\$\.([^.`\[]+)")


class DictDecoder:
    """Decodes dicts from a user's code. Every declared column must be present; all others are ignored."""

    def __init__(self, declared: Columns, output: Columns, what: str) -> None:
        """`what` names the function in messages."""
        self._declared = dict(declared)
        self._what = what
        self._decoder = JsonDecoder(declared, output, _convert)

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Returns the rows of the good answers in order, and the bad ones. None is a row of NULLs."""
        wrong: dict[int, str] = {}
        values = [self._select(row, answer, wrong) for row, answer in enumerate(answers)]
        try:
            decoded = self._decoder.decode_values(values)  # type: ignore[arg-type]  # whatever the decoder converts
        except Exception:  # noqa: BLE001  # it concerns a whole column: rows are then checked one by one
            for row, value in enumerate(values):
                reason = self._refuse(value)
                if reason:
                    values[row], wrong[row] = {}, reason
            decoded = self._decoder.decode_values(values)  # type: ignore[arg-type]  # as above
        return self._explained(decoded, values, wrong)

    def _select(self, row: int, answer: object, wrong: dict[int, str]) -> dict[str, object]:
        """Returns the declared columns of an answer. An exception from reading the user's object fails its row."""
        if answer is None:
            return {}
        if not isinstance(answer, Mapping):
            wrong[row] = f"{self._what} returned {_shown(answer)}: return a dict, or None for NULLs"
            return {}
        try:
            value = {name: answer[name] for name in self._declared if name in answer}
        except Exception as error:  # noqa: BLE001  # as above
            wrong[row] = f"{self._what} returned {_shown(answer)}, which cannot be read: {name_error(error)}"
            return {}
        if len(value) < len(self._declared):
            names = ", ".join(f"`{name}`" for name in self._declared if name not in value)
            wrong[row] = f"{self._what} returned a dict without {names}: return every column of `output`, None for NULL"
            return {}
        return value

    def _refuse(self, value: Mapping[str, object]) -> str:
        """Returns why a row cannot be converted to columns; empty if it can."""
        try:
            self._decoder.decode_values([value])  # type: ignore[list-item]  # as above
        except UnicodeEncodeError:  # for a lone surrogate, which `json.loads` makes of half an emoji
            return (
                f"{self._what} returned a string with a lone surrogate, which is not valid text: {_shown(value)}; "
                f"return valid text, for instance text.encode('utf-8', 'replace').decode()"
            )
        except Exception as error:  # noqa: BLE001  # from the user's objects, such as a time zone
            return f"{self._what} returned {_shown(value)}, which cannot be converted to columns: {name_error(error)}"
        return ""

    def _explained(self, decoded: Decoded, values: Sequence[Mapping[str, object]], wrong: Mapping[int, str]) -> Decoded:
        """Returns the result with the column, the value and a remedy in each failure."""
        failures = [self._explain(one, values[one.row]) for one in decoded.failures]
        frame = decoded.frame
        if wrong:
            failed = {one.row for one in failures}
            kept = [row for row in range(len(values)) if row not in failed]
            frame = frame[[place for place, row in enumerate(kept) if row not in wrong]]
            failures += [RecordFailure(row, FailureKind.WRONG_TYPE, message) for row, message in wrong.items()]
            failures.sort(key=lambda one: one.row)
        return Decoded(frame, failures)

    def _explain(self, failure: RecordFailure, value: Mapping[str, object]) -> RecordFailure:
        place = _PLACE.search(failure.message)
        name = "" if place is None else place[1]
        kind: DataType | None = self._declared.get(name)
        if kind is None:
            return RecordFailure(failure.row, failure.kind, f"{self._what} returned {_shown(value)}: {failure.message}")
        message = (
            f"{self._what} returned {_shown(value.get(name))} for `{name}`, which is {kind}: return a value of "
            f"that type, or change `output`"
        )
        return RecordFailure(failure.row, failure.kind, f"{message} ({failure.message})")


class JsonAnswerDecoder:
    """Decodes the bodies of HTTP answers. A missing field is NULL; None is a row of NULLs."""

    def __init__(self, declared: Columns, output: Columns) -> None:
        self._decoder = JsonDecoder(declared, output)

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Returns the rows of the good answers in order, and the bad ones."""
        bodies = [b"{}" if answer is None else answer for answer in answers]
        decoded = self._decoder.decode_values(bodies)  # type: ignore[arg-type]  # the target returns bytes
        failures = [
            msgspec.structs.replace(one, message=f"the server answered {_body(bodies[one.row])}: {one.message}")
            for one in decoded.failures
        ]
        return Decoded(decoded.frame, failures)


def _convert(record: type[msgspec.Struct]) -> Decode:
    def decode(value: object) -> object:
        try:
            return msgspec.convert(value, record, dec_hook=convert)
        except (msgspec.ValidationError, RecursionError):
            raise
        except Exception as error:  # from a nested value of the user's: its row is bad
            raise msgspec.ValidationError(name_error(error)) from error

    return decode


def _body(answer: object) -> str:
    """Returns the beginning of an answer, so that messages distinguish the server's text from the record."""
    assert isinstance(answer, bytes)
    return _shown(answer[: SHOWN_MAX + 1].decode("utf-8", "backslashreplace"))


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # too many digits, lists too deep, or user code
        return f"a value of type {type(value).__name__} (its repr raises {type(error).__name__})"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
