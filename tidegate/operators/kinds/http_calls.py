"""`http`: looks up each row at an HTTP server and adds fields of the JSON answer.

`https://prices/{sku}?in={currency}` is a URL with columns in it. The host is fixed: a record decides what is requested,
never from which host. Values are percent-encoded, so that each remains a single part of a path or of a query.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Final
from urllib.parse import quote, urlsplit

import msgspec
from pydantic import Field, SecretStr
from pydantic_core import PydanticCustomError
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.secrets import reveal
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import (
    HOST_REMEDY,
    Properties,
    ValueCheck,
    can_be_host,
    choice,
    duration,
    refusal,
    require_text,
)
from tidegate.config.fields.units import render_duration
from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import CallFailure
from tidegate.operators.calls.spec import CallKind, CallOperator, CallSettings, derive_fields
from tidegate.operators.fingerprint import digest
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot
from tidegate.operators.step import StepContext

if TYPE_CHECKING:
    import polars as pl

KINDS: Final = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "decimal", "string", "date"})
"""The types of columns whose text form is unambiguous."""
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


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

    def derive_requests(self, columns: Mapping[str, Sequence[object]], count: int) -> list[str | CallFailure | None]:
        """Returns the request for each row. The cache, not this method, handles equal URLs."""
        if not self.columns:
            return [self.texts[0]] * count
        return [self.fill(row) for row in zip(*(columns[name] for name in self.columns), strict=True)]

    def __str__(self) -> str:
        filled = (f"{{{column}}}{text}" for column, text in zip(self.columns, self.texts[1:], strict=True))
        return self.texts[0] + "".join(filled)


def _refuse(text: str, message: str, remedy: str) -> PydanticCustomError:
    return refusal(f"`{text[:80]}`: {message}", remedy)


def parse_url(text: str) -> UrlTemplate:
    """Parses a template. Raises PydanticCustomError with message and remedy for one that cannot be used."""
    refuse = partial(_refuse, text)
    pieces = _PLACEHOLDER.split(text)
    texts, columns = tuple(pieces[::2]), tuple(pieces[1::2])
    if any("{" in part or "}" in part for part in texts) or "" in columns:
        raise refuse("a placeholder is `{column}`", "write any other brace as %7B or %7D")
    if any(not part.isprintable() or " " in part or not part.isascii() for part in texts):
        raise refuse("a URL has no spaces and only ASCII characters", "percent-encode others: a space is %20")
    try:
        split = urlsplit(texts[0])
        split.port  # noqa: B018  # raises for a port that is not a number
    except ValueError as error:
        raise refuse(f"is not a URL: {error}", "for instance https://prices.example/v1/{sku}") from error
    if split.scheme not in ("http", "https") or not split.hostname:
        raise refuse("is not a URL with http or https and a host", "for instance https://prices.example/v1/{sku}")
    if not can_be_host(split.hostname):
        raise refuse(f"`{split.hostname[:60]}` is not a host", HOST_REMEDY)
    if columns and not split.path and not split.query:
        raise refuse(
            "a column cannot be part of the host", "put it after the first `/`: a record must not choose the host"
        )
    if split.username is not None or split.password is not None:
        raise refuse("contains a user or password", "put them into `headers`: {Authorization: ...}")
    if any("#" in part for part in texts):
        raise refuse("has a fragment, which clients never send", "remove `#` and what follows")
    in_path = next((place for place, part in enumerate(texts) if "?" in part), len(columns))
    return UrlTemplate(texts, columns, in_path)


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)


def _url(value: object) -> str:
    text = require_text(value, "a URL", "for instance https://prices.example/v1/{sku}")
    parse_url(text)
    return text


class HttpLookup(Settings):
    """The server that an `http` step requests, and how."""

    TITLE: ClassVar[str] = "HTTP lookups"
    url: Annotated[
        str,
        ValueCheck(_url, {"type": "string", "examples": ["https://prices.example/v1/{sku}"]}),
        Field(
            description="The address to request, with GET; `{column}` is the column's text, percent-encoded. A "
            "row with NULL there is not looked up: its answer is NULLs."
        ),
    ]
    headers: Annotated[
        Properties,
        Field(
            description="Headers of each request; secrets by `${file:...}`. Redirects to another scheme, host "
            "or port are not followed."
        ),
    ] = {}
    cache_ms: Annotated[
        int,
        duration("0s", "24h"),
        Field(alias="cache", description="How long an answer is valid, by its URL; at most 32 MiB per slot."),
    ] = 0
    missing: Annotated[
        str, choice("null", "fail"), Field(description="What 404 and 410 mean: NULLs, or a bad record.")
    ] = "null"


class HttpCallSettings(CallSettings):
    """The keys of an HTTP lookup."""

    http: Annotated[
        HttpLookup | None,
        Field(
            description="Looks each record up at an HTTP server; the columns of `output` are fields of its JSON "
            "answer (`tidegate docs async`)."
        ),
    ] = None


class HttpOperator(CallOperator, frozen=True, kw_only=True, tag="http"):
    """Requests `url` for each row."""

    url: UrlTemplate
    headers: dict[str, str]
    cache_ms: int
    missing_fails: bool

    @override
    def reads(self, port: int = 0) -> set[str]:
        answers = {name for name, _ in self.answers}
        return set(self.url.columns) | {name for name, _ in self.pruned_columns() if name not in answers}

    @override
    def digest_answers(self, columns: Mapping[str, str]) -> dict[str, str]:
        asked = [columns[name] for name in self.url.columns]
        return {name: digest("http", *self.url.texts, name, str(kind), *asked) for name, kind in self.answers}

    @override
    def describes(self) -> list[str]:
        cached = f", answers good for {render_duration(self.cache_ms)}" if self.cache_ms else ""
        return [f"GET {self.url}{cached}", *super().describes()]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.calls.http_client import HttpTarget, JsonAnswerDecoder
        from tidegate.operators.calls.runtime import CallRuntime, open_caller

        judge = JsonAnswerDecoder(self.answers, self.kept_answers)  # used by the thread of the calls
        target = HttpTarget(
            self.headers,
            self.cache_ms / 1000,
            self.capacity,
            missing_fails=self.missing_fails,
            is_readable=lambda body: not judge.decode([body]).failures,
        )
        decoder = JsonAnswerDecoder(self.answers, self.kept_answers)

        def prepare(frame: pl.DataFrame) -> Sequence[object]:
            columns = {name: frame[name].to_list() for name in self.url.columns}
            return self.url.derive_requests(columns, frame.height)

        return CallRuntime(self, slot, open_caller(self, slot, target), prepare, decoder)


class HttpKind(CallKind):
    """The kind of a step with `http`."""

    key = "http"
    examples = ("http: {url: 'https://prices/{id}'}, output: {price: double}",)
    needs: ClassVar[Mapping[str, str]] = {
        "output": "add the fields of the answer's JSON that become columns: `output: {price: double}`"
    }
    settings = HttpCallSettings

    @override
    def build(self, step: HttpCallSettings, context: StepContext) -> None:
        lookup = step.http
        assert lookup is not None
        template = parse_url(lookup.url)
        fields = derive_fields(step, context)
        usable = [_usable(name, context) for name in template.columns]
        sound = _headers_sound(lookup, context)
        if fields is None or not all(usable) or not sound:
            return
        context.declare_columns(dict(fields["output"]))
        headers, missing_fails = reveal(lookup.headers), lookup.missing == "fail"
        operator = HttpOperator(
            **fields, url=template, headers=headers, cache_ms=lookup.cache_ms, missing_fails=missing_fails
        )
        context.add(operator)


def _usable(name: str, context: StepContext) -> bool:
    """Returns True if a column can be inserted into the URL, or False after reporting why not."""
    path, kind = ("http", "url"), context.columns.get(name)
    if kind is None:
        context.problem(path, f"there is no column `{name}`", derive_suggestion(name, context.columns))
    elif kind.kind not in KINDS:
        context.problem(path, f"`{name}` is {kind}, which cannot be part of a URL", "cast it to string in a `select`")
    return kind is not None and kind.kind in KINDS


def _headers_sound(lookup: HttpLookup, context: StepContext) -> bool:
    sound = True
    for name, value in lookup.headers.items():
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        path = ("http", "headers", name)
        if not _HEADER.fullmatch(name):
            sound = False
            context.problem(path, f"`{name[:60]}` is not the name of a header", "letters, digits and `-`", at_key=True)
        elif not (plain.isprintable() and plain.isascii()):
            sound = False
            context.problem(path, "the value is not one line of ASCII text", "correct it, or the file that contains it")
    return sound


KIND = HttpKind()
