"""What `validate` and `run` refuse about a function of the user's, and what they send to the slots."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.waiting import PATIENCE_S
from tidegate.checks import pipeline_file
from tidegate.checks.pipeline_file import check_file, plan_file, probe
from tidegate.config.errors import ConfigErrors

pytestmark = pytest.mark.slow

CHILD: Final = probe
"""Tests replace it (`tests/support/trying.py`)."""
TEXT = """
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
sources:
  orders: {topic: orders, schema: {id: bigint}}
steps:
  - {name: located, from: orders, async: lookup.geo:resolve, output: {country: string}}
sinks:
  out: {from: located, topic: out, key: id}
"""


@pytest.fixture
def _in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_file, "probe", CHILD)


def write(directory: Path, geo: str) -> Path:
    (directory / "lookup").mkdir()
    (directory / "lookup" / "geo.py").write_text(geo)
    path = directory / "p.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.usefixtures("_in_a_child")
def test_the_modules_of_a_good_function_are_in_the_plan(tmp_path: Path) -> None:
    source = "print('imported')\nasync def resolve(row): return None\n"
    path = write(tmp_path, source)
    assert check_file(path, {})[1] == ()
    _, plan = plan_file(path, {})
    assert plan.modules == {"lookup/geo.py": source}


def test_modules_lie_next_to_the_file_as_it_was_named_as_schemas_do(tmp_path: Path) -> None:
    """Kubernetes mounts links to files, and other volumes next to them."""
    for place in ("mounted", "elsewhere"):
        (tmp_path / place).mkdir()
    link = write(tmp_path / "mounted", "async def resolve(row): return None\n")
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
    (tmp_path / "mounted" / "order.avsc").write_text(schema)
    text = TEXT.replace(
        "topic: orders, schema: {id: bigint}",
        "topic: orders, format: avro, schema_id: none, schema: {file: order.avsc}",
    )
    (tmp_path / "elsewhere" / "p.yaml").write_text(text)
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere" / "p.yaml")
    _, plan = plan_file(link, {})
    assert list(plan.modules) == ["lookup/geo.py"]


@pytest.mark.parametrize(
    ("geo", "problem"),
    [
        ("def resolve(row): ...\n", "`resolve` is not async; write `async def resolve(row)`: a function that"),
        ("import nowhere\n", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'; put it next to"),
        (
            "import sys\nsys.exit()\n",
            "the module `lookup.geo` ends the process when it is imported: SystemExit; importing a module",
        ),
        ("async def f(row:\n", "(geo.py, line 1); correct the module"),
        ("x = 1\nLIMITS = {}['prices']\n", "KeyError: 'prices'; correct the module, at lookup/geo.py:2 in <module>"),
    ],
)
def test_a_function_that_run_could_not_use_is_refused_with_its_place(tmp_path: Path, geo: str, problem: str) -> None:
    path = write(tmp_path, geo)
    _, (found,) = check_file(path, {})
    assert "p.yaml:9:42: steps.located.async: " in str(found)
    assert problem in str(found)
    with pytest.raises(ConfigErrors):
        plan_file(path, {})


WAITING = "import threading\nstarted = threading.Event()\n"


@pytest.mark.usefixtures("_in_a_child")
def test_a_module_that_does_not_end_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_file, "CODE_LIMIT_S", 1.0)
    path = write(tmp_path, f"{WAITING}started.wait()\n")
    _, (found,) = check_file(path, {})
    assert "the import of the module `lookup.geo` took more than 1 s; importing a module must" in str(found)


def test_an_import_ends_when_the_command_that_waits_for_it_is_killed(tmp_path: Path) -> None:
    """Otherwise a module with an endless loop would keep a core busy."""
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    path = write(tmp_path, f"alive = open({str(alive)!r}, 'wb', 0)\nalive.write(b'started')\n{WAITING}started.wait()\n")
    with os.fdopen(os.open(alive, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as told:
        with subprocess.Popen([sys.executable, "-m", "tidegate", "validate", path], stderr=subprocess.PIPE) as command:
            assert select.select([told], [], [], PATIENCE_S)[0]
            assert told.read() == b"started"
            command.kill()
        assert select.select([told], [], [], PATIENCE_S)[0], "the import goes on"
        assert told.read() == b""


@pytest.mark.usefixtures("_in_a_child")
def test_a_thread_that_a_module_starts_holds_up_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, f"{WAITING}threading.Thread(target=started.wait).start()\nasync def resolve(row): ...\n")
    assert check_file(path, {})[1] == ()


@pytest.mark.usefixtures("_in_a_child")
def test_of_two_references_the_one_that_answers_is_described(tmp_path: Path) -> None:
    """Whatever the other module does to the process."""
    path = write(tmp_path, "async def resolve(row): ...\n")
    (tmp_path / "bad.py").write_text("import os\nos._exit(7)\n")
    more = "  - {name: more, from: located, async: bad:f, output: {b: string}}\nsinks:"
    path.write_text(TEXT.replace("sinks:", more, 1).replace("from: located, topic", "from: more, topic"))
    _, (found,) = check_file(path, {})
    assert "steps.more.async: the import of the module `bad` ended the process with code 7" in str(found)


def test_user_code_is_checked_although_the_step_has_another_problem(tmp_path: Path) -> None:
    path = write(tmp_path, "def resolve(row): ...\n")
    path.write_text(
        TEXT.replace("resolve, output", "resolved, output").replace("from: orders, async", "from: order, async")
    )
    _, found = check_file(path, {})
    assert sorted(one.path for one in found) == ["steps.located.async", "steps.located.from"]
