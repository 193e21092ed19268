"""The parser from tokens to a syntax tree, by Spark's expression grammar (`expression` in its `SqlBaseParser.g4`).

Recursive descent, lowest precedence first: OR, AND, NOT, predicates (BETWEEN IN LIKE RLIKE IS), comparison, `|`, `^`,
`&`, `+ - ||`, `* / % DIV`, signs, then subscripts, fields and `::`. Anything outside the grammar is rejected with its
position. `parse.py` resolves types afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidegate.config.fields.columns import TypeProblem, derive_type
from tidegate.datatypes import BOOLEAN, RESERVED, STRING, VOID, DataType, holds_kind, is_reserved
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.intervals import interval_literal, is_unit, range_literal
from tidegate.expressions.syntax_tree import Apply, Arrow, CastTo, Constant, Member, Name, Qualified, Star, Syntax
from tidegate.expressions.tokens import Token, TokenReader, binary_literal, derive_tokens, number_literal

MAX_DEPTH = 50
_LEVELS = (
    {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>"},
    {"|": "|"},
    {"^": "^"},
    {"&": "&"},
    {"+": "+", "-": "-", "||": "||"},
    {"*": "*", "/": "/", "%": "%", "div": "div"},
)
_OPERATORS = {sign: (name, level) for level, signs in enumerate(_LEVELS) for sign, name in signs.items()}
_ENDS_OF_TERMS = frozenset(
    {"and", "or", "not", "then", "else", "end", "when", "as", "from", "in", "is", "like", "between"}
)

_OTHER_SIGNS = {"&&": "write `and`", "=>": "write `>=`", "=<": "write `<=`", "===": "write `=`", "!==": "write `!=`"}
"""Signs from other languages."""
_OTHER_SIGNS["as"] = "leave it out: the name of a column is its key"
_OTHER_SIGNS["filter"] = "write it after the call of an aggregate function: sum(x) filter (where condition)"
_OTHER_SIGNS |= dict.fromkeys(("ignore", "respect"), "write it after the call: last(x) ignore nulls")
_NULLS_INSIDE = frozenset({"first", "last", "any_value", "first_value", "last_value"})
"""Functions that also take `IGNORE NULLS` inside their parentheses."""
OF_OTHER_ROWS = {
    "lag": "a step in Python that keeps the row before: `tidegate init --example change_of_value`",
    "lead": "a step in Python that waits for the next row: `tidegate docs python`",
    **dict.fromkeys(("row_number", "rank", "dense_rank"), "a step with `key` and `keep`, which ranks rows"),
}
"""Window functions without a counterpart among the aggregates, and their replacements."""
_WITH_UNIT = frozenset({"timestampadd", "dateadd", "date_add", "timestampdiff", "datediff", "date_diff", "timediff"})
"""Functions whose first argument of three is the name of a unit."""
_BRACKETS = {"array": "<", "map": "<", "struct": "<", "decimal": "(", "dec": "(", "numeric": "("}
"""The types that have brackets."""
_CLAUSES = frozenset({"where", "select", "having"})
"""Words with which statements begin."""


def derive_syntax(text: str) -> Syntax:
    """Returns the syntax tree of one expression.

    Raises ExpressionRefusal with the offset of the unexpected token.
    """
    tokens = derive_tokens(text)
    first, last = tokens[0], tokens[max(0, len(tokens) - 2)]
    if (last.kind, last.text) == ("operator", "*") and (len(tokens) == 2 or tokens[-3].text == "."):
        raise ExpressionRefusal(last.start, "unexpected `*`", 'write `select: {"*": all}` for all columns')
    reader = _Reader(text, tokens)
    tree = reader.expression()
    if reader.peek.kind != "end":
        remedy = _OTHER_SIGNS.get(reader.peek.text.lower(), "remove it, or put an operator before it")
        if first.text.lower() in _CLAUSES and isinstance(tree, Name):
            raise ExpressionRefusal(
                first.start, f"unexpected `{first.text}`", "leave it out: this is an expression, not a statement"
            )
        raise reader.unexpected(remedy)
    return tree


class _Reader(TokenReader):
    """Recursive descent parser with one method per level of the grammar."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._text = text
        self._depth = 0

    def expression(self) -> Syntax:
        """Reads a complete expression. OR has the lowest precedence."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionRefusal(
                self.peek.start, f"the expression is nested deeper than {MAX_DEPTH}", "split it into two steps"
            )
        tree = self._left_associative(self._conjunction, lambda: self._logic("or"))
        self._depth -= 1
        return tree

    def _conjunction(self) -> Syntax:
        return self._left_associative(self._negation, lambda: self._logic("and"))

    def _logic(self, word: str) -> tuple[int, str] | None:
        start = self.peek.start
        return (start, word) if self._word(word) else None

    def _spanned(self, first: int, tree: Syntax) -> Syntax:
        """Adds the span to a tree: from the token `first` to the last token that has been read."""
        if isinstance(tree, Apply | CastTo) and tree.span == (0, 0):
            return replace(tree, span=(self._tokens[first].start, self._tokens[self._at - 1].end))
        return tree

    def _left_associative(
        self, operand: Callable[[], Syntax], operator: Callable[[], tuple[int, str] | None]
    ) -> Syntax:
        first = self._at
        tree = operand()
        length = 0
        while found := operator():
            length += 1
            if length > MAX_DEPTH:
                raise ExpressionRefusal(found[0], f"more than {MAX_DEPTH} operands in a row", "split it into two steps")
            tree = self._spanned(first, Apply(found[0], found[1], (tree, operand())))
        return tree

    def _negation(self) -> Syntax:
        start, first = self.peek.start, self._at
        count = 0
        while self._word("not") or self._sign("!"):
            count += 1
        tree = self._predicate()
        if count == 0:
            return tree
        return self._spanned(first, Apply(start, "not", (tree if count % 2 else Apply(start, "not", (tree,)),)))

    def _predicate(self) -> Syntax:
        first = self._at
        return self._spanned(first, self._unplaced_predicate())

    def _unplaced_predicate(self) -> Syntax:
        tree = self._operation()
        start = self.peek.start
        negated = self._is_word(0, "not") and self._is_word(1, "between", "in", "like", "ilike", "rlike", "regexp")
        if negated:
            self._next()
        found: Syntax | None = None
        if self._word("between"):
            low = self._operation()
            self._expect_word("and")
            found = Apply(start, "between", (tree, low, self._operation()))
        elif self._word("in"):
            found = Apply(start, "in", (tree, *self._listed()))
        elif self._word("rlike", "regexp"):
            found = Apply(start, "rlike", (tree, self._operation()))
        elif self._is_word(0, "like", "ilike"):
            function = self._next().text.lower()
            pattern = self._operation()
            escape = (self._operation(),) if self._word("escape") else ()
            found = Apply(start, function, (tree, pattern, *escape))
        elif self._word("is"):
            return self._is_predicate(start, tree)
        if found is None:
            return tree
        return Apply(start, "not", (found,)) if negated else found

    def _is_predicate(self, start: int, tree: Syntax) -> Syntax:
        negated = self._word("not")
        if self._word("null", "unknown"):
            found: Syntax = Apply(start, "isnull", (tree,))
        elif self._is_word(0, "true", "false"):
            found = Apply(start, "<=>", (tree, Constant(start, self._next().text.lower() == "true", BOOLEAN)))
        elif self._word("distinct"):
            self._expect_word("from")
            found = Apply(start, "<=>", (tree, self._operation()))
            negated = not negated
        else:
            raise self.unexpected("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return Apply(start, "not", (found,)) if negated else found

    def _operation(self, floor: int = 0) -> Syntax:
        """Reads left-associative operators of level `floor` or higher (precedence climbing)."""
        first = self._at
        tree = self._signed()
        for _ in range(MAX_DEPTH):
            token = self.peek
            name, level = (
                _OPERATORS.get(token.text.lower(), ("", -1)) if token.kind in ("operator", "name") else ("", -1)
            )
            if level < floor:
                return tree
            self._next()
            tree = self._spanned(first, Apply(token.start, name, (tree, self._operation(level + 1))))
        raise ExpressionRefusal(self.peek.start, f"more than {MAX_DEPTH} operands in a row", "split it into two steps")

    def _signed(self) -> Syntax:
        first = self._at
        token = self._sign("-", "+", "~")
        if token is None:
            return self._primary()
        if token.text == "-" and self.peek.kind == "number":
            return self._postfix(number_literal(self._next(), token.start, negative=True), first)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionRefusal(token.start, f"the expression is nested deeper than {MAX_DEPTH}", "remove signs")
        operand = self._signed()
        self._depth -= 1
        name = {"-": "negative", "+": "positive", "~": "~"}[token.text]
        return self._spanned(first, Apply(token.start, name, (operand,)))

    def _primary(self) -> Syntax:
        first = self._at
        return self._postfix(self._spanned(first, self._atom()), first)

    def _postfix(self, tree: Syntax, first: int) -> Syntax:
        for _ in range(MAX_DEPTH):
            tree = self._spanned(first, tree)
            if token := self._sign("["):
                tree = Apply(token.start, "[]", (tree, self.expression()))
                self._expect("]")
            elif token := self._sign("."):
                if self.peek.kind not in ("name", "quoted"):
                    raise self.unexpected("expected the name of a field")
                tree = Member(self.peek.start, tree, self._next().text)
            elif token := self._sign("::"):
                tree = CastTo(token.start, tree, self._type(), attempt=False)
            else:
                return tree
        raise ExpressionRefusal(self.peek.start, f"more than {MAX_DEPTH} fields or subscripts in a row", "shorten it")

    def _atom(self) -> Syntax:
        token = self.peek
        if token.kind == "number":
            return number_literal(self._next(), token.start)
        if token.kind == "string":
            return Constant(token.start, self._next().text, STRING, token.lost)
        if token.kind == "binary":
            return binary_literal(self._next())
        if token.kind == "quoted":
            return Name(token.start, self._next().text)
        if token.kind == "name":
            return self._named()
        if self._sign("("):
            return self._parenthesis(token)
        if token.text == "." and self._after().kind == "number" and self._after().start == token.end:
            self._next()
            number = self._next()
            return number_literal(Token("number", "." + number.text, token.start, number.end), token.start)
        raise self.unexpected("expected a column, a literal, a function or `(`")

    def _parenthesis(self, token: Token) -> Syntax:
        if self._is_word(0, "select", "with", "values"):
            raise ExpressionRefusal(token.start, "a subquery is not supported", "join or filter in a step of its own")
        tree = self.expression()
        self._expect(")")
        return tree

    def _named(self) -> Syntax:
        """Reads a term that starts with a word: a literal, CASE, CAST, a function call or a column."""
        token = self._next()
        word = token.text.lower()
        called = self.peek.kind == "operator" and self.peek.text == "("
        if called and word not in ("in", "not", "and", "or", "interval"):
            return self._call(token, word)
        if word in ("true", "false"):
            return Constant(token.start, word == "true", BOOLEAN)
        if word == "null":
            return Constant(token.start, None, VOID)
        if word == "case":
            return self._case(token.start)
        if word in ("date", "timestamp", "timestamp_ltz", "timestamp_ntz") and self.peek.kind == "string":
            return Apply(token.start, f"{word.removesuffix('_ltz')} literal", (self._atom(),))
        if word == "interval" and (self.peek.kind in ("string", "number") or self.peek.text == "-"):
            return self._interval(token.start)
        if word == "interval" and self.peek.kind in ("name", "quoted") and is_unit(self._after().text):
            number, unit = self.peek.text, self._after().text
            raise ExpressionRefusal(
                token.start, "the number of an interval must be a literal", f"write `{number} * interval 1 {unit}`"
            )
        if word in _ENDS_OF_TERMS:
            self._at -= 1
            raise self.unexpected(
                "expected a column, a literal, a function or `(`; write a column of that name in backticks"
            )
        if self.peek.kind == "operator" and self.peek.text == "->":
            raise ExpressionRefusal(
                token.start, "a lambda function is only allowed as an argument", "write `transform(a, x -> x + 1)`"
            )
        return Name(token.start, token.text)

    def _call(self, token: Token, word: str) -> Syntax:
        self._expect("(")
        arguments: tuple[Syntax, ...]
        if word in ("cast", "try_cast"):
            operand = self.expression()
            self._expect_word("as")
            kind = self._type()
            self._expect(")")
            return CastTo(token.start, operand, kind, attempt=word == "try_cast")
        if word == "extract":
            field = self._next()
            self._expect_word("from")
            arguments = (Constant(field.start, field.text, STRING), self.expression())
        elif word == "trim" and not self._sign(")"):
            word, arguments = self._trim()
        elif word == "position":
            arguments = self._position()
        elif word in ("substring", "substr"):
            arguments = self._arguments("from", "for")
        else:
            start = self.peek.start
            if self._word("distinct"):
                if word != "count":
                    raise ExpressionRefusal(
                        start, f"DISTINCT is not supported in `{word}`", "use it only in `count(distinct x)`"
                    )
                word = "count distinct"
            arguments = self._arguments()
        inside = self._nulls() if word in _NULLS_INSIDE else None
        if word in _WITH_UNIT and len(arguments) == 3 and isinstance(arguments[0], Name):
            arguments = (Constant(arguments[0].start, arguments[0].name, STRING), *arguments[1:])
        self._expect(")")
        call = self._qualified(Apply(token.start, word, arguments), inside)
        if self._is_word(0, "over") and self._after().text == "(":
            remedy = f"use {OF_OTHER_ROWS.get(word, 'a step with `aggregate`')}"
            raise ExpressionRefusal(token.start, f"the window function `{word}(...) over` is not supported", remedy)
        return call

    def _qualified(self, call: Apply, nulls: tuple[int, bool] | None) -> Syntax:
        """Reads the clauses after a call. `nulls`: the `IGNORE NULLS` inside its parentheses."""
        start, condition = self.peek.start, None
        if self._clause_follows():
            self._next()
            self._next()
            if not self._word("where"):
                raise self.unexpected(f"write {call.function}(...) filter (where condition)")
            condition = self.expression()
            self._expect(")")
        nulls = nulls or self._nulls()
        if nulls and self._clause_follows():
            raise self.unexpected(f"FILTER comes first: {call.function}(...) filter (where condition) ignore nulls")
        if condition is None and nulls is None:
            return call
        return Qualified(start if nulls is None else nulls[0], call, condition, nulls and nulls[1])

    def _clause_follows(self) -> bool:
        return self._is_word(0, "filter") and self._after().text == "("

    def _nulls(self) -> tuple[int, bool] | None:
        """Reads `IGNORE NULLS` or `RESPECT NULLS`, and returns its offset and whether NULLs are ignored."""
        if not (self._is_word(0, "ignore", "respect") and self._is_word(1, "nulls")):
            return None
        token = self._next()
        self._next()
        return token.start, token.text.lower() == "ignore"

    def _arguments(self, *separators: str) -> tuple[Syntax, ...]:
        """Reads arguments up to the closing parenthesis. `separators` are alternatives to the comma, in order."""
        if self.peek.text == ")" and self.peek.kind == "operator":
            return ()
        if star := self._sign("*"):
            return (Star(star.start),)
        found = [self._argument()]
        while self._sign(",") or (separators and self._word(*separators)):
            found.append(self._argument())
        return tuple(found)

    def _argument(self) -> Syntax:
        """Reads an expression or a lambda function."""
        start, names = self.peek.start, self._lambda_parameters()
        if not names:
            return self.expression()
        self._at += 2 if self._after().text == "->" else 2 * len(names) + 2
        if len({name.lower() for name in names}) < len(names):
            raise ExpressionRefusal(start, "two parameters of a lambda function have the same name", "rename one")
        if any(map(is_reserved, names)):
            raise ExpressionRefusal(
                start, f"names that begin with `{RESERVED}` belong to Tidegate", "rename the parameter"
            )
        return Arrow(start, names, self.expression())

    def _lambda_parameters(self) -> tuple[str, ...]:
        """Returns the names before `->` if a lambda function follows, without reading them."""
        named = ("name", "quoted")
        if self.peek.kind in named and self._after().kind == "operator" and self._after().text == "->":
            return (self.peek.text,)
        if self.peek.text != "(":
            return ()
        names: list[str] = []
        while self._after(2 * len(names) + 1).kind in named:
            names.append(self._after(2 * len(names) + 1).text)
            if self._after(2 * len(names)).text != ",":
                break
        closed = bool(names) and self._after(2 * len(names)).text == ")"
        return tuple(names) if closed and self._after(2 * len(names) + 1).text == "->" else ()

    def _trim(self) -> tuple[str, tuple[Syntax, ...]]:
        side = self._next().text.lower() if self._is_word(0, "both", "leading", "trailing") else ""
        function = {"leading": "trim leading", "trailing": "trim trailing"}.get(side, "btrim")
        if side and self._word("from"):
            return function, (self.expression(),)
        first = self.expression()
        if self._word("from"):
            return function, (self.expression(), first)
        if side or self.peek.text == ",":
            raise self.unexpected("expected FROM")
        return "trim", (first,)

    def _position(self) -> tuple[Syntax, ...]:
        needle = self._operation()
        if self._word("in"):
            return needle, self._operation()
        found = [needle]
        while self._sign(","):
            found.append(self.expression())
        return tuple(found)

    def _listed(self) -> tuple[Syntax, ...]:
        bracket = self._expect("(")
        if self._is_word(0, "select", "with"):
            raise ExpressionRefusal(bracket.start, "a subquery is not supported", "join or filter in a step of its own")
        found = [self.expression()]
        while self._sign(","):
            found.append(self.expression())
        self._expect(")")
        return tuple(found)

    def _case(self, start: int) -> Syntax:
        subject = None if self._is_word(0, "when") else self.expression()
        parts: list[Syntax] = []
        while self._word("when"):
            when = self.peek.start
            condition = self.expression()
            parts.append(condition if subject is None else Apply(when, "=", (subject, condition)))
            self._expect_word("then")
            parts.append(self.expression())
        if not parts:
            raise self.unexpected("expected WHEN")
        other = self._word("else")
        if other:
            parts.append(self.expression())
        if not self._word("end"):
            wanted = "expected END" if other else "expected WHEN, ELSE or END: `CASE WHEN a THEN b ELSE c END`"
            raise self.unexpected(wanted)
        return Apply(start, "case", tuple(parts))

    def _interval(self, start: int) -> Syntax:
        """Reads the numbers and units of INTERVAL.

        Examples: `interval 1 day 2 hours`, `interval '90' second`, `interval '1 day'`,
        `interval '1 02:00' day to minute`.
        """
        words: list[str] = []
        while self.peek.kind in ("string", "number") or (
            self.peek.text == "-" and self._after().kind in ("string", "number")
        ):
            amount = self._next().text
            if amount == "-":
                amount += self._next().text
            words.append(amount)
            if self.peek.kind == "name" and self.peek.text.lower() not in _ENDS_OF_TERMS:
                words.append(self._next().text)
        if self._word("to"):
            kind, value = range_literal(start, *words, self._next().text)
        else:
            kind, value = interval_literal(start, " ".join(words))
        return Constant(start, value, kind)

    def _type(self) -> DataType:
        """Reads a type, which has brackets only after the names of those types that take them."""
        first = last = self._next()
        depth = 0
        if self.peek.text == _BRACKETS.get(first.text.lower()):
            while last.kind != "end" and (depth or last is first):
                last = self._next()
                depth += (last.text in ("<", "(")) - (last.text in (">", ")"))
        try:
            kind = derive_type(self._text[first.start : last.end])
        except TypeProblem as problem:
            raise ExpressionRefusal(first.start + problem.column - 1, problem.message, problem.remedy) from None
        if holds_kind(kind, ("struct",)):
            raise ExpressionRefusal(
                first.start, "casts to a struct are not supported", "write `named_struct('name', value)`"
            )
        return kind
