"""Reader of the tokens of an expression."""

from __future__ import annotations

from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.tokens import Token


class TokenReader:
    """The operations on tokens that are independent of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def peek(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def _after(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self.peek
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def unexpected(self, wanted: str) -> ExpressionRefusal:
        """Returns the refusal of the next token."""
        token = self.peek
        what = "the expression ends too early" if token.kind == "end" else f"unexpected `{token.text}`"
        return ExpressionRefusal(token.start, what, wanted)

    def _word(self, *words: str) -> bool:
        """Reads the next token if it is one of these keywords, and returns whether it was."""
        if self.peek.kind == "name" and self.peek.text.lower() in words:
            self._next()
            return True
        return False

    def _is_word(self, ahead: int, *words: str) -> bool:
        token = self._after(ahead)
        return token.kind == "name" and token.text.lower() in words

    def _sign(self, *signs: str) -> Token | None:
        if self.peek.kind == "operator" and self.peek.text in signs:
            return self._next()
        return None

    def _expect(self, sign: str) -> Token:
        token = self._sign(sign)
        if token is None:
            raise self.unexpected(f"expected `{sign}`")
        return token

    def _expect_word(self, word: str) -> None:
        if not self._word(word):
            raise self.unexpected(f"expected {word.upper()}")
