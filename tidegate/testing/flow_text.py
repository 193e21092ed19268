"""Records as single-line YAML, as a pipeline file accepts them. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from typing import Any, Final

from tidegate.config.values import derive_scalar
from tidegate.formats.plain import as_float, render_number

_PLAIN: Final = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_./@+-]| (?=[A-Za-z0-9_]))*", re.ASCII)
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d(T[0-9:.]+Z)?", re.ASCII)
_KEY_WIDTH_MAX: Final = 100
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def render_record(record: dict[str, Any]) -> str:
    """Renders the fields of a record by their names in the file, with a readable timestamp."""
    timestamp = record.get("timestamp")
    shown = record if not isinstance(timestamp, int) else {**record, "timestamp": render_moment(timestamp)}
    return render_flow(shown)


def render_moment(at_ms: int) -> str | int:
    """Renders a timestamp in UTC, or returns the number if no calendar covers it."""
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=at_ms)
    except OverflowError:
        return at_ms
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def render_flow(value: Any) -> str:
    """Renders any JSON value. A number whose digits YAML would not keep, such as 12.50, becomes text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_render_key(name)}: {render_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(render_flow, value))}]"
    if isinstance(value, str):
        return _render_text(value)
    if isinstance(value, Decimal):
        number = as_float(value)
        return _quote(render_number(value)) if number is None else json.dumps(number)
    return json.dumps(value)


def _render_key(name: str) -> str:
    """Renders a key. Keys are always text, and variables are not replaced in them."""
    return name if _PLAIN.fullmatch(name) and len(name) <= _KEY_WIDTH_MAX else _quote(name)


def _render_text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) or _TIMESTAMP.fullmatch(text)
    if plain and isinstance(derive_scalar(text), str):
        return text
    return _quote(text.replace("${", "$${"))


def _quote(text: str) -> str:
    """Renders text in double quotes, with YAML escapes for characters that cannot be printed."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\x{code:02X}")
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
