"""`make rest`: a client is generated from what a daemon serves as its description, and drives its whole life.

The generator and the client are in a virtual environment of their own; broker, Spark and daemon are real.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.daemon_process import DaemonProcess
from tests.support.rig import PARTITIONS, Rig
from tests.waiting import PATIENCE_S
from tidegate.dev.broker import DevelopmentBroker

LIFE = Path(__file__).with_name("life.py")
ADDRESS = r"metrics and probes on (http://[\d.:]+)"
LINTER = "@redocly/cli@2"
COLUMNS = ["customer", "id", "price_cents", "quantity", "sku", "status"]


def main() -> int:
    """Exit code 0 when all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path, help="the virtual environment with openapi-python-client")
    binaries = parser.parse_args().environment.absolute() / "bin"
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-rest-") as name,
        DevelopmentBroker(Path(name) / "broker") as broker,
        Rig(broker, Path(name) / "rig") as rig,
    ):
        rig.writer.start()
        rig.outputs.start()
        daemon, token_file = make_daemon(rig)
        address = daemon.start().wait_running().wait_for(ADDRESS)[1]
        daemon.wait_committed()
        generate(binaries, address, Path(name))
        life = [str(binaries / "python"), str(LIFE), address, token_file.read_text().strip(), rig.pipeline.name]
        found = run(life, Path(name) / "client")
        print(json.dumps(found))
        check(found)
        rig.wait_output()
        assert run([*life, "stop"], Path(name) / "client") == {"state": "stopping"}
        assert daemon.wait() == 0
        rig.assert_clean()
        rig.assert_exact()
    return 0


def make_daemon(rig: Rig) -> tuple[DaemonProcess, Path]:
    """Returns a daemon, not started, and the file of its token."""
    daemon, token_file = rig.daemon(), rig.directory / "token"
    pipeline = json.loads(daemon.pipeline.read_text())
    pipeline["http"]["token_file"] = str(token_file)
    daemon.pipeline.write_text(json.dumps(pipeline))
    return daemon, token_file


def generate(binaries: Path, address: str, directory: Path) -> None:
    """Generates the client from the description that the daemon serves, and lints the description."""
    description = directory / "openapi.json"
    with urllib.request.urlopen(f"{address}/api/v1/openapi.json", timeout=PATIENCE_S) as answer:
        description.write_bytes(answer.read())
    generator = [str(binaries / "openapi-python-client"), "generate", "--meta", "none", "--fail-on-warning"]
    target = ["--path", str(description), "--output-path", str(directory / "client" / "tidegate_client")]
    (directory / "client").mkdir()
    subprocess.run([*generator, *target], check=True, env={"PATH": f"{binaries}:/usr/bin:/bin"})
    if shutil.which("npx"):
        subprocess.run(["npx", "--yes", LINTER, "lint", str(description)], check=True, cwd=directory)
    else:
        print("npx is missing: the description is not linted by Redocly")


def run(command: list[str], client: Path) -> dict[str, Any]:
    """Runs the client, which is imported from a directory; returns what it prints."""
    done = subprocess.run(command, env={"PYTHONPATH": str(client)}, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    """Compares what the client saw with the pipeline."""
    assert found["state"] == "running"
    assert {"orders", "totals", "paid_orders", "sku_totals"} <= set(found["steps"]), found["steps"]
    assert found["settings"] > 0
    assert (found["checkpoint"], found["failures"]) == ("completed", 0)
    assert found["subtasks"] > 0
    assert Path(found["savepoint"].removeprefix("file://")).is_dir(), found["savepoint"]
    assert {"started", "running", "savepoint", "command"} <= set(found["events"]), found["events"]
    assert found["points"] == found["step_points"] > 0
    assert found["partitions"] == PARTITIONS
    assert "totals" in found["states"]
    assert found["tapped"] == [COLUMNS] * 2
    refused = ("without_token", "other_pipeline", "no_such_step", "no_dead_letters")
    codes = [found[name] for name in refused]
    assert codes == ["unauthorized", "other-pipeline", "unknown-step", "no-dead-letters"], codes


if __name__ == "__main__":
    raise SystemExit(main())
