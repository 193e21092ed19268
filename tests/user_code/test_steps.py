"""A class derived from `Step`: its methods, version, states and timers as plain values, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import BIGINT, INT, STRING, TIMESTAMP, DataType, decimal_of
from tidegate.user_code.describe import CodeDescription, CodeProblem, DeclaredState, DeclaredTimer, describe
from tidegate.user_code.modules import install_modules

HEAD = "from datetime import datetime\nfrom decimal import Decimal\nfrom tidegate.python import *\n"
PROCESS = "    def process(self, row, out): ...\n"
TIMED = PROCESS + "    def on_timer(self, name, at, out): ...\n"
VISITS = f"""
class Visits(Step):
    version = 2
    clicks = Value("bigint", default=0)
    pages = Map("string", "timestamp", ttl="30d")
    recent = List("struct<at: timestamp, url: string>", ttl={{"processing_time": "1h"}})
    quiet = Timer("event-time")
    nightly = Timer("clock")
    limit = 7

    def open(self, settings): ...
{TIMED}
"""


@pytest.fixture(autouse=True)
def _nothing_installed() -> Iterator[None]:
    yield
    install_modules({})


def described(source: str, name: str = "S") -> CodeDescription | CodeProblem:
    modules = {"own.py": HEAD + source}
    install_modules(modules)
    return describe(f"own:{name}", modules)


def fact(source: str, name: str = "S") -> CodeDescription:
    found = described(source, name)
    assert isinstance(found, CodeDescription), found
    return found


def problem(source: str) -> tuple[str, str]:
    found = described(source)
    assert isinstance(found, CodeProblem), found
    return found.message, found.remedy


def test_a_step_is_described_in_plain_values() -> None:
    found = fact(VISITS, "Visits")
    day = 86_400_000
    place = DataType("struct", fields=(("at", TIMESTAMP), ("url", STRING)))
    assert (found.is_class, found.is_step, found.version) == (True, True, 2)
    assert found.methods == ("process", "on_timer", "open")
    assert found.states == (
        DeclaredState("clicks", "value", BIGINT, default=0),
        DeclaredState("pages", "map", TIMESTAMP, STRING, ttl=Ttl(30 * day)),
        DeclaredState("recent", "list", place, ttl=Ttl(3_600_000, processing=True)),
    )
    assert found.timers == (DeclaredTimer("quiet", clock=False), DeclaredTimer("nightly", clock=True))
    assert msgspec.json.decode(msgspec.json.encode(found), type=CodeDescription) == found


def test_declarations_are_inherited_and_overridden() -> None:
    found = fact(
        f"""
class Base(Step):
    first = Value("bigint")
    gone = Value("bigint")
{PROCESS}
class Mixin:
    mixed = Value("string")
class S(Base, Mixin):
    gone = None
    last = Value("double")
    first = Value("int")
"""
    )
    assert [(one.name, str(one.type)) for one in found.states] == [
        ("mixed", "string"),
        ("first", "int"),
        ("last", "double"),
    ]
    assert found.methods == ("process",)


@pytest.mark.parametrize(
    ("declaration", "kind", "default"),
    [
        ('Value("decimal(10,2)", default=Decimal("1.50"))', decimal_of(10, 2), "1.50"),
        ('Value("double", default=0)', DataType("double"), 0),
        ('Value("array<string>", default=[])', DataType("array", element=STRING), []),
        ('Value("map<bigint, int>", default={7: 8})', DataType("map", element=INT, key=BIGINT), {"7": 8}),
        ('Value("date", default=datetime(2026, 1, 2).date())', DataType("date"), "2026-01-02"),
        ('Value("boolean", default=False)', DataType("boolean"), False),
    ],
)
def test_a_default_is_a_plain_value_that_fits_its_type(declaration: str, kind: DataType, default: object) -> None:
    (state,) = fact(f"class S(Step):\n    x = {declaration}\n{PROCESS}").states
    assert (state.type, state.default) == (kind, default)


@pytest.mark.parametrize(
    ("declaration", "message", "remedy"),
    [
        ('Value("bigin")', "`x` of `S`: `bigin` is not a type", "did you mean `bigint`?"),
        ("Value(int)", "`x` of `S`: `<class 'int'>` is not a type", 'write it as text, for instance "bigint"'),
        ("Value", "`x` of `S` is the class `Value`", 'write its type: `Value("bigint")`'),
        ('Value("bigint", default="0")', "`x` of `S` is bigint, and its default is `'0'`", "write a plain value"),
        ('Value("tinyint", default=128)', "`x` of `S` is tinyint, and its default is `128`", "write a plain value"),
        ('Value("bigint", default=object())', "`x` of `S` is bigint, and its default is `<object", "write a plain"),
        (
            'Value("double", default=float("nan"))',
            "`x` of `S` is double, and its default is `nan`",
            "has no form in JSON",
        ),
        ('Map("double", "bigint")', "the key of `x` of `S` is double, whose values cannot be compared", "another type"),
        ('Map("string", "strin")', "`x` of `S`: `strin` is not a type", "did you mean `string`?"),
        ('Map("strin", "string")', "the key of `x` of `S`: `strin` is not a type", "did you mean `string`?"),
        ('Value("bigint", ttl="30")', "`ttl` of `x` of `S`: ", "30s"),
        ('List("bigint", ttl={"clock": "1h"})', "`ttl` of `x` of `S`: clock: unknown key", "event_time"),
    ],
)
def test_a_wrong_declaration_is_refused_with_class_attribute_and_remedy(
    declaration: str, message: str, remedy: str
) -> None:
    found = problem(f"class S(Step):\n    x = {declaration}\n{PROCESS}")
    assert found[0].startswith(message)
    assert remedy in found[1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f'    key = Value("bigint")\n{PROCESS}', "`key` of `S` hides `key` of every step"),
        (f'    now = Value("bigint")\n{PROCESS}', "`now` of `S` hides `now` of every step"),
        (
            f'    event_timers = Value("bigint")\n{PROCESS}',
            "`event_timers` of `S` has the name of a state that holds timers",
        ),
        (f'    clicks: Value("bigint")\n{PROCESS}', "`clicks` of `S` has a declaration as its type"),
        (f"    clicks: 'Timer(1)'\n{PROCESS}", "`clicks` of `S` has a declaration as its type"),
        (f'    Clicks = Value("bigint")\n{PROCESS}', "`Clicks` of `S` cannot be the name of a state"),
        (f'    a = b = Value("bigint")\n{PROCESS}', "`b` of `S` is also `a`"),
        (f'    t = Timer("event-time")\n{PROCESS}', "`S` declares timers and has no `on_timer`"),
        (f'    t = Timer("wall")\n{TIMED}', "`t` of `S`: `'wall'` is not a clock"),
        (f'    version = "x"\n{PROCESS}', "`version` of `S` is `'x'`"),
        (f"    version = True\n{PROCESS}", "`version` of `S` is `True`"),
        ("    pass\n", "the step `S` has no `process`"),
        ("    def process(self, row): ...\n", "`process` of `S` cannot be called: too many positional arguments"),
        ("    async def process(self, row, out): ...\n", "`process` of `S` is async"),
        ("    def process(self, row, out): yield row\n", "`process` of `S` is a generator"),
        ("    process = 7\n", "`process` of `S` is not a method"),
        ("    def process_batch(self, frame): ...\n", "`process_batch` of `S` cannot be called: too many positional"),
        (f"    def on_timer(self, at, out): ...\n{PROCESS}", "`on_timer` of `S` cannot be called: too many positional"),
        (f"    def open(self): ...\n{PROCESS}", "`open` of `S` cannot be called: too many positional arguments"),
        (
            f"    def __init__(self, x): ...\n{PROCESS}",
            "the class `S` cannot be called: missing a required argument: 'x'",
        ),
    ],
)
def test_what_no_pipeline_could_run_is_refused(body: str, message: str) -> None:
    found = problem(f"class S(Step):\n{body}")
    assert found[0].startswith(message)
    assert found[1]


@pytest.mark.parametrize(
    ("arguments", "takes_keys"), [("self, frame, out", False), ("self, keys, frame, out", True), ("self, *all", True)]
)
def test_a_batch_may_take_its_keys(arguments: str, takes_keys: bool) -> None:
    found = fact(f"class S(Step):\n    def process_batch({arguments}): ...\n")
    assert (found.methods, found.takes_keys) == (("process_batch",), takes_keys)
