"""Text constants of expressions in which a variable was replaced: the file may have meant a literal `${`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate.config.fields.base import Path
from tidegate.config.load import LoadedPipeline
from tidegate.expressions.tokens import derive_tokens
from tidegate.plan.steps import PlacedExpression


@dataclass(frozen=True, slots=True)
class ReplacedText:
    """A text constant as written in the file, with the names of its variables but not their values."""

    path: Path
    constant: str
    variables: tuple[str, ...]


def find_replaced_texts(loaded: LoadedPipeline, expressions: Iterable[PlacedExpression]) -> Iterator[ReplacedText]:
    """Yields replaced texts in the order of the file."""
    for path in dict.fromkeys(one.path for one in expressions):
        text = loaded.place(path).interpolated
        if text is None:
            continue
        for token in derive_tokens(text.text):
            variables = text.derive_sources(token.start, token.end) if token.kind == "string" else ()
            if variables:
                yield ReplacedText(path, text.derive_written(token.start, token.end), variables)
