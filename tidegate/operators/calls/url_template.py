"""`https://prices/{sku}?in={currency}`: a URL with columns in it. Pure.

The host is fixed: a record decides what is requested, never from which host. Values are percent-encoded, so that each
remains a single part of a path or of a query.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from tidegate.config.fields.hosts import REMEDY, can_be_host
from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import CallFailure

KINDS: Final = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "decimal", "string", "date"})
"""The types of columns whose text form is unambiguous."""
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


class UrlProblem(Exception):
    """A template that cannot be used: message and remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


class UrlTemplate(msgspec.Struct, frozen=True):
    """A parsed template. There is one more of `texts` than of `columns`. The first `in_path` columns precede the
    query.
    """

    texts: tuple[str, ...]
    columns: tuple[str, ...]
    in_path: int

    def fill(self, values: Sequence[object]) -> str | CallFailure | None:
        """Returns the URL of a row from the values of `columns`; None if one is NULL, so that there is no request."""
        parts = [self.texts[0]]
        for place, value in enumerate(values):
            if value is None:
                return None
            text = _text_of(value)
            if place < self.in_path and text.strip(".") == "":
                message = (
                    f"`{self.columns[place]}` is {text!r}, which cannot be part of a path: filter out such records"
                )
                return CallFailure(FailureKind.CALL_FAILED, message)
            parts += (quote(text, safe=""), self.texts[place + 1])
        return "".join(parts)

    def __str__(self) -> str:
        filled = (f"{{{column}}}{text}" for column, text in zip(self.columns, self.texts[1:], strict=True))
        return self.texts[0] + "".join(filled)


def parse_url(text: str) -> UrlTemplate:
    """Parses a template. Raises UrlProblem."""
    pieces = _PLACEHOLDER.split(text)
    texts, columns = tuple(pieces[::2]), tuple(pieces[1::2])
    if any("{" in part or "}" in part for part in texts) or "" in columns:
        raise UrlProblem("a placeholder is `{column}`", "write any other brace as %7B or %7D")
    if any(not part.isprintable() or " " in part or not part.isascii() for part in texts):
        raise UrlProblem("a URL has no spaces and only ASCII characters", "percent-encode others: a space is %20")
    try:
        split = urlsplit(texts[0])
        split.port  # noqa: B018  # raises for a port that is not a number
    except ValueError as error:
        raise UrlProblem(f"is not a URL: {error}", "for instance https://prices.example/v1/{sku}") from error
    if split.scheme not in ("http", "https") or not split.hostname:
        raise UrlProblem("is not a URL with http or https and a host", "for instance https://prices.example/v1/{sku}")
    if not can_be_host(split.hostname):
        raise UrlProblem(f"`{split.hostname[:60]}` is not a host", REMEDY)
    if columns and not split.path and not split.query:
        raise UrlProblem(
            "a column cannot be part of the host", "put it after the first `/`: a record must not choose the host"
        )
    if split.username is not None or split.password is not None:
        raise UrlProblem("contains a user or password", "put them into `headers`: {Authorization: ...}")
    if any("#" in part for part in texts):
        raise UrlProblem("has a fragment, which clients never send", "remove `#` and what follows")
    in_path = next((place for place, part in enumerate(texts) if "?" in part), len(columns))
    return UrlTemplate(texts, columns, in_path)


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def derive_requests(
    template: UrlTemplate, columns: Mapping[str, Sequence[object]], count: int
) -> list[str | CallFailure | None]:
    """Returns the request for each row. The cache, not this function, handles equal URLs."""
    if not template.columns:
        return [template.texts[0]] * count
    rows = zip(*(columns[name] for name in template.columns), strict=True)
    return [template.fill(row) for row in rows]
