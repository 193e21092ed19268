"""What a source reads of records besides their values, and what a sink writes: looked at, and typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidegate.config.models import SinkSettings, SourceSettings
from tidegate.datatypes import DataType, Kind, holds_kind
from tidegate.expressions.expression import Column, Expression
from tidegate.formats import keys
from tidegate.formats.record_parts import HeaderRules
from tidegate.formats.registry import FORMATS
from tidegate.operators.kinds.kafka_source import DELETED, PARTS, TOMBSTONE, MetadataColumn
from tidegate.plan.logical import Input
from tidegate.plan.prune import find_loss
from tidegate.plan.scope import Declared
from tidegate.settings.base import Path
from tidegate.settings.record_parts import ALL

if TYPE_CHECKING:
    from tidegate.plan.steps import Builder

WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
INEXACT: Final[frozenset[Kind]] = frozenset({"float", "double", "map"})
"""Equal values have several texts: a float by where it was rounded, a map by the order of its entries."""

Found = tuple[Path, str, str]
"""Path, message, remedy."""


def derive_metadata(
    name: str, source: SourceSettings, values: Mapping[str, DataType]
) -> tuple[tuple[MetadataColumn, ...], list[Found]]:
    """The columns of a source besides those of its `values`, and what is wrong with them."""
    path: Path = ("sources", name)
    columns: list[MetadataColumn] = []
    problems: list[Found] = []
    taken = dict.fromkeys(values, "`schema`" if source.schema_ else f"every {source.format} source")
    if source.on_null == TOMBSTONE:
        if DELETED in taken:
            message = f"`{DELETED}` is a column of {taken[DELETED]}, and says which rows are tombstones"
            problems.append(((*path, "on_null"), message, "rename it, or use skip"))
        taken[DELETED] = "`on_null: tombstone`"
    for part, column in source.metadata.parts.items():
        kind = PARTS.get(part) or keys.derive_key_type(source.key_format or keys.TEXT, source.key_schema)
        if column in taken:
            message = f"`{column}` is a column of {taken[column]} already"
            problems.append(((*path, "metadata", part), message, "give the column another name"))
        elif kind is not None:  # else the file's own checks have reported it
            columns.append(MetadataColumn(part, column, kind))
        taken.setdefault(column, f"`metadata.{part}`")
    return tuple(columns), problems


class SinkParts:
    """Of one sink, while the plan is made. `check` first; the rest only where it finds nothing wrong."""

    def __init__(
        self,
        builder: Builder,
        one: Declared,
        sink: SinkSettings,
        columns: Mapping[str, DataType],
        inputs: Sequence[Input],
    ) -> None:
        """`inputs`: what it reads."""
        self._builder = builder
        self._path_of = one.path
        self._reads = inputs
        self._sink = sink
        self._columns = columns
        self.key = FORMATS[sink.format].default_key(columns) if sink.key is None else sink.key
        self.key_format = sink.key_format or keys.TEXT
        self.inputs: dict[str, Expression] = {name: Column(name, kind) for name, kind in columns.items()}
        """All columns that the sink may read: those that arrive, and a column for each header that is added."""
        self.added: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> HeaderRules | None:
        """As the file has them; None without."""
        words = self._sink.headers
        if words is None:
            return None
        passed = None if words.pass_ == ALL else words.pass_ if isinstance(words.pass_, tuple) else ()
        return HeaderRules(passed, words.drop, words.rename, self.added, tuple(words.add.values()))

    def check(self) -> bool:
        """Whether all of it can be used; what cannot is reported."""
        before = len(self._builder.problems)
        self._check_key()
        if self._sink.timestamp is not None:
            self._builder.moment(self._path("timestamp"), self._sink.timestamp, self._columns)
        if self._sink.partition is not None:
            self._check_type("partition", self._sink.partition, WHOLE, "a whole number", "cast it to int in a `select`")
        self._check_tombstones()
        self._check_headers()
        return len(self._builder.problems) == before

    def _path(self, *below: str) -> Path:
        return (*self._path_of, *below)

    def _check_type(self, word: str, name: str, kinds: frozenset[str], what: str, remedy: str, *below: str) -> None:
        path = self._path(word, *below)
        kind = self._builder.column(path, name, self._columns)
        if kind is not None and kind.kind not in kinds:
            self._builder.problem(path, f"`{name}` is {kind}, not {what}", remedy)

    def _check_key(self) -> None:
        if self.key is None:
            if self._sink.key_format is not None:
                message = "there is no key that could have a format"
                self._builder.problem(self._path("key_format"), message, "add `key`: the column that is the record key")
            return
        if self.key_format == keys.TEXT:
            self._builder.key(self._path("key"), self.key, self._columns)
        elif self.key_format == keys.RAW:
            remedy = "cast it in a `select`, or write `key_format: string`"
            self._check_type("key", self.key, frozenset({"binary"}), "binary, which a raw key has to be", remedy)
        else:
            kind = self._builder.column(self._path("key"), self.key, self._columns)
            if kind is not None and holds_kind(kind, INEXACT):
                remedy = "cast it in a `select`, for instance to bigint or string"
                message = f"`{self.key}` is {kind}, whose values cannot be compared exactly"
                self._builder.problem(self._path("key"), message, remedy)

    def _check_tombstones(self) -> None:
        words = self._sink.on_null
        if words is None:
            return
        self._check_type(
            "on_null",
            words.column,
            frozenset({"boolean"}),
            "boolean",
            "compare it with something in a `select`",
            "column",
        )
        if self.key is None:
            message = "a tombstone deletes a key, and this sink writes none"
            self._builder.problem(self._path("on_null"), message, "add `key`: the column that is the record key")
        elif words.column == self.key:
            self._builder.problem(self._path("on_null", "column"), f"`{self.key}` is the key", "name another column")

    def _check_headers(self) -> None:
        words = self._sink.headers
        if words is None:
            return
        rules = self.headers
        assert rules is not None
        if rules.passes:
            self._check_loss()
        for word in ("drop", "rename") if not rules.passes else ():
            if getattr(words, word):
                message = "no headers are passed on"
                self._builder.problem(
                    self._path("headers", word), message, "add `pass: all`, or remove it", at_key=True
                )
        added: list[tuple[str, str]] = []
        for place, (header, text) in enumerate(words.add.items()):
            path = self._path("headers", "add", header)
            expression = self._builder.expression(path, text, self._columns)
            if expression is None:
                continue
            if expression.type.kind not in ("string", "binary"):
                remedy = "cast it: `cast(... as string)`"
                self._builder.problem(path, f"is {expression.type}, not a string or binary", remedy)
                continue
            column = f"headers.{place}"
            while column in self._columns:
                column += "_"
            self.inputs[column] = expression
            added.append((header, column))
        self.added = tuple(added)

    def _check_loss(self) -> None:
        lost = find_loss(self._builder.graph, self._reads)
        if lost is not None:
            step = lost.partition(".")[0]
            message = f"the headers of records are lost in `{step}`, whose rows are made of several records"
            remedy = "read them as a column, `metadata: {headers: ...}` of the source, or write `pass: none`"
            self._builder.problem(self._path("headers", "pass"), message, remedy)
