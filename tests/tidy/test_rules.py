"""Each style rule finds what it should find, and leaves the rest alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.tidy import rules
from tests.tidy.test_tree import WORDS

LONG_BODY = "    x = 1\n" * 60
words = partial(rules.check_words, banned=WORDS)

# An @ keeps a text from breaking the rule right here; it is removed before the rule sees the text.
BROKEN: list[tuple[Callable[[str], list[str]], str]] = [
    (rules.check_module_size, "x = 1\n" * 701),
    (rules.check_function_sizes, f"def f():\n{LONG_BODY}"),
    (rules.check_docstrings, "x = 1\n"),
    (rules.check_docstrings, '"""M."""\ndef f(): ...\n'),
    (rules.check_docstrings, '"""M."""\nclass C:\n    """C."""\n    def m(self): ...\n'),
    (rules.check_relative_imports, "from . import x\n"),
    (rules.check_relative_imports, "from .x import y\n"),
    (rules.check_heavy_imports, "import polars as pl\n"),
    (rules.check_heavy_imports, "from confluent_kafka.admin import AdminClient\n"),
    (rules.check_purity, "import time\n"),
    (rules.check_purity, "def f():\n    from threading import Lock\n"),
    (rules.check_purity, "def f(p): return open(p)\n"),
    (rules.check_purity, "from datetime import datetime\nx = datetime.now()\n"),
    (rules.check_purity, "import datetime\nx = datetime.datetime.now()\n"),
    (rules.check_swallowed_errors, "try:\n    f()\nexcept Exception:\n    pass\n"),
    (rules.check_swallowed_errors, "try:\n    f()\nexcept:\n    ...\n"),
    (rules.check_swallowed_errors, "with contextlib.suppress(Exception):\n    f()\n"),
    (rules.check_silenced_tools, "x = f()  # type: ig@nore\n"),
    (rules.check_silenced_tools, "x = f()  # type: ig@nore[attr-defined]\n"),
    (rules.check_silenced_tools, "x = f()  # no@qa\n"),
    (rules.check_silenced_tools, "x = f()  # no@qa: S603\n"),
    (rules.check_test_habits, "import time\ntime.sleep(1)\n"),
    (rules.check_test_habits, "from time import sleep\n"),
    (rules.check_test_habits, "@pytest.mark.skipif(True)\ndef test_x(): ...\n"),
    (rules.check_test_habits, "@pytest.mark.xfail\ndef test_x(): ...\n"),
    (rules.check_clients, "import confluent_kafka as ck\ndef f(): return ck.Producer({})\n"),
    (rules.check_clients, "import confluent_kafka\nwith confluent_kafka.Consumer({}): pass\n"),
    (rules.check_clients, "def f():\n    from confluent_kafka.admin import AdminClient as A\n    return A({})\n"),
    (rules.check_kinds, "def f():\n    from tidegate.operators.kinds.keep import LastOperator\n"),
    (words, "# TO@DO: later\n"),
    (words, "see /ro@ot/x\n"),
]
KEPT: list[tuple[Callable[[str], list[str]], str]] = [
    (rules.check_kinds, "from tidegate.operators.builtin.kafka_sink import SinkOperator\n"),
    (rules.check_module_size, "x = 1\n" * 700),
    (rules.check_function_sizes, f'def f():\n    """{"d" * 10}\n\n    more\n    """\n' + "    x = 1\n" * 59),
    (rules.check_docstrings, '"""M."""\ndef _f(): ...\nclass _C:\n    def m(self): ...\n'),
    (rules.check_heavy_imports, "if TYPE_CHECKING:\n    import polars as pl\ndef f():\n    import polars as pl\n"),
    (rules.check_purity, "import msgspec\nfrom datetime import timedelta\ndef f(now): return now + timedelta(1)\n"),
    (rules.check_swallowed_errors, "try:\n    f()\nexcept OSError:\n    pass\n"),
    (rules.check_swallowed_errors, "try:\n    f()\nexcept Exception as e:\n    post(e)\n"),
    (rules.check_silenced_tools, "x = f()  # type: ig@nore[attr-defined]  # no types\n"),
    (rules.check_silenced_tools, "x = f()  # no@qa: S603  our own list\n"),
    (rules.check_test_habits, "@pytest.mark.slow\ndef test_x(): wait_until(f, 'x')\n"),
    (rules.check_clients, "import confluent_kafka as ck\ndef f(p: ck.Producer): p.flush()\n"),
    (rules.check_clients, "from tidegate.kafka.facts import Producer\nx = Producer(7, 0)  # not confluent_kafka's\n"),
    (words, "methods, /tmp/x and rootless\n"),
]


@pytest.mark.parametrize(("rule", "text"), BROKEN)
def test_broken_rule_is_found(rule: Callable[[str], list[str]], text: str) -> None:
    assert rule(text.replace("@", "")) != []


@pytest.mark.parametrize(("rule", "text"), KEPT)
def test_kept_rule_is_left_alone(rule: Callable[[str], list[str]], text: str) -> None:
    assert rule(text.replace("@", "")) == []


def test_rooms_are_found_in_every_form_of_import() -> None:
    text = (
        "import tidegate.plan.graph\nfrom tidegate.task import loop\nfrom tidegate import sinks\nimport os\n"
        "def f():\n    from tidegate.state.memory import MemoryState\n"
    )
    assert rules.find_rooms_imported(text) == {"plan", "task", "sinks", "state"}


def test_an_override_needs_no_docstring() -> None:
    text = '"""M."""\nclass C(D):\n    """C."""\n    @override\n    def m(self): ...\n    def n(self): ...\n'
    assert rules.check_docstrings(text) == ["line 6: C.n has no docstring"]


@pytest.mark.parametrize(("attributes", "parameters", "found"), [(20, 8, []), (21, 0, ["C"]), (0, 9, ["C"])])
def test_classes_with_many_attributes_or_parameters_are_found(
    attributes: int, parameters: int, found: list[str]
) -> None:
    given = ", ".join(["self", *(f"p{number}" for number in range(parameters))])
    body = "".join(f"        self.a{number} = 0\n" for number in range(attributes)) or "        pass\n"
    assert list(rules.find_large_classes(f"class C:\n    def __init__({given}):\n{body}")) == found
