"""What `validate` and `run` refuse about a function of the user's, and what they send to the slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.checks.pipeline_file import check_file, plan_file
from tidegate.config.errors import ConfigErrors

pytestmark = pytest.mark.slow

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


def write(directory: Path, geo: str) -> Path:
    (directory / "lookup").mkdir()
    (directory / "lookup" / "geo.py").write_text(geo)
    path = directory / "p.yaml"
    path.write_text(TEXT)
    return path


def test_the_modules_of_a_good_function_are_in_the_plan(tmp_path: Path) -> None:
    source = "print('imported')\nasync def resolve(row): return None\n"
    path = write(tmp_path, source)
    assert check_file(path, {})[1] == ()
    _, plan = plan_file(path, {})
    assert plan.modules == {"lookup/geo.py": source}


def test_modules_lie_beside_the_file_as_it_was_named_as_schemas_do(tmp_path: Path) -> None:
    """Kubernetes mounts links to files, and other volumes beside them."""
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
        ("def resolve(row): ...\n", "`resolve` is not async; write `async def resolve(row)`: what blocks would stop"),
        ("import nowhere\n", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'; put it next to"),
        ("import os\nos._exit(7)\n", "the import of the module `lookup.geo` ended the process with code 7; a module"),
        (
            "import sys\nsys.exit()\n",
            "the module `lookup.geo` ends the process when it is imported: SystemExit; a module",
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
