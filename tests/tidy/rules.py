"""The style rules as functions from a source text to a list of complaints. `test_tree.py` applies them to the tree.

They are pure, so that each rule is itself tested on text that breaks it (`test_rules.py`).
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

NESTED_ROOMS = frozenset({"config.fields"})
"""Folders of a room that others import without the rest of it."""

MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
ATTRIBUTES_MAX = 20
PARAMETERS_MAX = 8

HEAVY = frozenset({"confluent_kafka", "kafka", "obstore", "polars", "polars_hash", "pyspark", "rocksdict"})
"""Libraries with threads or slow imports.

They may be imported only where they run, after Spark has forked its workers.
"""

IMPURE = frozenset({
    "asyncio", "concurrent", "multiprocessing", "os", "queue", "random", "secrets", "select", "shutil", "signal",
    "socket", "subprocess", "tempfile", "threading", "time", "uuid",
})  # fmt: skip
"""Modules that read a clock, generate random numbers, or access threads, processes, files or sockets."""

IMPURE_CALLS = frozenset({"open", "input", "print", "date.today", "datetime.now", "datetime.today", "datetime.utcnow"})

Function = ast.FunctionDef | ast.AsyncFunctionDef

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields of statements that hold statements, handlers of exceptions and cases of a match."""


@lru_cache(maxsize=1)
def parse(text: str) -> ast.Module:
    """Parses a text; the rules that are applied to it one after the other share the tree, and leave it as it is."""
    return ast.parse(text)


@lru_cache(maxsize=1)
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Returns all nodes of a text, also shared."""
    return tuple(ast.walk(parse(text)))


@lru_cache(maxsize=1)
def statements_of(text: str) -> tuple[ast.AST, ...]:
    """Returns the statements of a text, a fraction of its nodes: imports, classes and functions are all among them."""
    waiting: deque[ast.AST] = deque([parse(text)])
    found: list[ast.AST] = []
    while waiting:
        node = waiting.popleft()
        found.append(node)
        for block in _BLOCKS:
            waiting.extend(getattr(node, block, ()))
    return tuple(found)


def check_module_size(text: str) -> list[str]:
    """Limits modules to 700 lines."""
    lines = len(text.splitlines())
    return [f"{lines} lines, at most {MODULE_LINES_MAX}"] if lines > MODULE_LINES_MAX else []


def check_function_sizes(text: str) -> list[str]:
    """Limits each function to 60 lines, without its docstring and decorators."""
    too_long = []
    if len(text.splitlines()) <= FUNCTION_LINES_MAX:
        return []
    for node in statements_of(text):
        if isinstance(node, Function):
            lines = _count_lines(node)
            if lines > FUNCTION_LINES_MAX:
                too_long.append(f"line {node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")
    return too_long


def _count_lines(node: Function) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def find_large_classes(text: str) -> dict[str, str]:
    """Finds classes with more than one job: over 20 attributes that methods set, or over 8 constructor parameters.

    Fields of value classes (structs, settings) are not counted, because a file or a page determines their number.
    """
    found = {}
    for node in statements_of(text):
        if isinstance(node, ast.ClassDef):
            attributes, parameters = len(_attributes_of(node)), _count_parameters(node)
            if attributes > ATTRIBUTES_MAX or parameters > PARAMETERS_MAX:
                found[node.name] = f"{attributes} attributes, {parameters} constructor parameters"
    return found


def check_class_sizes(text: str) -> list[str]:
    """Limits classes to one job."""
    return [f"{name} has {sizes}" for name, sizes in find_large_classes(text).items()]


def _attributes_of(node: ast.ClassDef) -> set[str]:
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }


def _count_parameters(node: ast.ClassDef) -> int:
    for member in node.body:
        if isinstance(member, Function) and member.name == "__init__":
            names = member.args
            return len(names.posonlyargs + names.args + names.kwonlyargs) - 1
    return 0


def check_docstrings(text: str) -> list[str]:
    """Requires a docstring for the module, everything public at its top level, and public methods of its public
    classes.

    Methods marked with `@override` or `@overload` are exempt.
    """
    tree = parse(text)
    missing = [] if ast.get_docstring(tree) else ["no module docstring"]
    for owner, node in _public_definitions(tree):
        if not ast.get_docstring(node) and not _is_exempt(node):
            missing.append(f"line {node.lineno}: {owner}{node.name} has no docstring")
    return missing


def _is_exempt(node: Function | ast.ClassDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id in ("override", "overload") for one in node.decorator_list)


def _public_definitions(tree: ast.Module) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield "", node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield "", node
            for member in node.body:
                if isinstance(member, Function) and not member.name.startswith("_"):
                    yield f"{node.name}.", member


def room_of(parts: Sequence[str]) -> str:
    """Returns the room of a module below `tidegate`: its first folder, or one of NESTED_ROOMS."""
    nested = ".".join(parts[:2])
    return nested if nested in NESTED_ROOMS else parts[0]


def find_rooms_imported(text: str) -> set[str]:
    """Returns the rooms of all Tidegate modules that this text imports: `tidegate.plan.graph` -> `plan`."""
    rooms = set()
    for name in find_imports(text):
        parts = name.split(".")
        if parts[0] == "tidegate" and len(parts) > 1:
            rooms.add(room_of(parts[1:]))
    return rooms


def check_rooms(text: str, room: str, allowed: frozenset[str]) -> list[str]:
    """Requires that only the allowed rooms are imported."""
    return [f"{room} must not import {other}" for other in sorted(find_rooms_imported(text) - allowed)]


KINDS = "tidegate.operators.kinds"


def check_kinds(text: str) -> list[str]:
    """Forbids importing a kind of operator: each kind declares how it differs."""
    if KINDS not in text:
        return []
    names = (name for name in find_imports(text) if name.startswith(KINDS))
    return [f"imports {name}: declare what differs as a trait of `Operator`" for name in names]


def find_imports(text: str) -> Iterator[str]:
    """Yields the full names of all imported modules; `from tidegate import plan` yields `tidegate.plan`."""
    for node in statements_of(text):
        yield from _names_of(node)


def _names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield f"relative import, level {node.level}" if node.level else str(node.module)
        if node.module == "tidegate":
            yield from (f"tidegate.{alias.name}" for alias in node.names if not alias.name.startswith("_"))


_MAY_BE_RELATIVE = re.compile(r"from[\s\\]*\.")
"""Matches if a text is worth parsing."""


def check_relative_imports(text: str) -> list[str]:
    """Requires absolute imports."""
    if not _MAY_BE_RELATIVE.search(text):
        return []
    return [name for name in find_imports(text) if name.startswith("relative import")]


def check_heavy_imports(text: str) -> list[str]:
    """Forbids heavy libraries at module top level (`if TYPE_CHECKING:` does not count)."""
    found = []
    for node in parse(text).body:
        found += [f"line {node.lineno}: imports {name}" for name in _names_of(node) if name.split(".")[0] in HEAVY]
    return found


def check_purity(text: str) -> list[str]:
    """Forbids clocks, randomness, threads, sockets and files: the modules that provide them and the built-in calls."""
    found = [f"imports {name}" for name in find_imports(text) if name.split(".")[0] in IMPURE]
    for node in nodes_of(text):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in IMPURE_CALLS or name.removeprefix("datetime.") in IMPURE_CALLS:
                found.append(f"line {node.lineno}: calls {name}")
    return found


_MAY_CATCH_ALL = re.compile(r"\b(?:Base)?Exception\b|\bexcept\s*:")
"""Matches if a text is worth parsing."""


def check_swallowed_errors(text: str) -> list[str]:
    """Forbids empty handlers of all exceptions, and `suppress` of all exceptions."""
    if not _MAY_CATCH_ALL.search(text):
        return []
    broad = {"Exception", "BaseException"}
    found = []
    for node in nodes_of(text):
        if isinstance(node, ast.ExceptHandler):
            caught = "BaseException" if node.type is None else ast.unparse(node.type)
            if caught in broad and all(isinstance(line, ast.Pass) or _is_constant(line) for line in node.body):
                found.append(f"line {node.lineno}: swallows {caught}")
        if isinstance(node, ast.Call) and _last_name(node.func).endswith("suppress"):
            found += [f"line {node.lineno}: suppresses {a}" for a in map(ast.unparse, node.args) if a in broad]
    return found


def _last_name(function: ast.expr) -> str:
    """Returns `suppress` for `contextlib.suppress`, and an empty string for an unnamed function."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_constant(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[[a-z-]+(?:,\s*[a-z-]+)*\]\s+#\s*\S)")
_NOQA = re.compile(r"#\s*noqa(?!:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*\s+\S)")


def check_silenced_tools(text: str) -> list[str]:
    """Requires that a `type: ignore` or `noqa` names its code and gives a reason on the same line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if _TYPE_IGNORE.search(line):
            found.append(f"line {number}: type: ignore needs [code]  # reason")
        if _NOQA.search(line):
            found.append(f"line {number}: noqa needs : CODE  reason")
    return found


def check_test_habits(text: str) -> list[str]:
    """Forbids sleeping, skipping and expected failures in tests."""
    banned = {"time.sleep", "pytest.skip", "pytest.importorskip", "pytest.xfail"}
    marks = {"pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail", "pytest.mark.flaky"}
    last = {name.rpartition(".")[2] for name in banned | marks}
    if not any(word in text for word in last):
        return []
    found = []
    for node in nodes_of(text):
        if isinstance(node, ast.Attribute) and node.attr in last and ast.unparse(node) in banned | marks:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [f"line {node.lineno}: time.sleep" for alias in node.names if alias.name == "sleep"]
    return found


CLIENTS = frozenset({"Producer", "Consumer", "AdminClient"})
"""Client classes of confluent_kafka."""


def check_clients(text: str) -> list[str]:
    """Forbids creating librdkafka clients: the one place that creates them keeps their log out of the output."""
    if "confluent_kafka" not in text:
        return []
    names: set[str] = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            modules = {alias.asname or alias.name for alias in node.names if alias.name == "confluent_kafka"}
            names |= {f"{module}.{kind}" for module in modules for kind in CLIENTS}
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "confluent_kafka":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in CLIENTS}
    calls = (node for node in nodes_of(text) if isinstance(node, ast.Call) and ast.unparse(node.func) in names)
    return [f"line {node.lineno}: use tests.support.clients for {ast.unparse(node.func)}" for node in calls]


def check_words(text: str, banned: Mapping[str, str]) -> list[str]:
    """Forbids these patterns; each comes with its replacement."""
    found = []
    for pattern, remedy in banned.items():
        for match in re.finditer(pattern, text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"line {line}: {match[0]!r}: {remedy}")
    return found
