"""`make bench`: Tidegate side by side with the raw client loop and the JVM engines, as ratios from one run.

Drives a peer harness (`--peers DIR`, default ../shared/peers): a folder with `bench.py` and `setup.sh` that runs each
engine on the same orders and checks every output record. Results are kept as JSON lines in bench/results. Without that
folder there is nothing to compare with and the command says so; nothing else in the project needs it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RAW = "librdkafka-py"
TARGET_RATIO = {"W1": 1.5, "W2": 2.0}
TARGET_LATENCY_MS = (110.0, 250.0)


def main() -> int:
    """Exit code 0 when every output was exact, 1 when a run failed or an output was wrong."""
    options = _parse()
    if not (options.peers / "bench.py").exists():
        print(f"no peer harness in {options.peers}: give its folder by --peers DIR", file=sys.stderr)
        return 2
    results = HERE / "results" / time.strftime("%Y-%m-%d-%H%M%S.jsonl")
    results.parent.mkdir(exist_ok=True)
    command = [sys.executable, str(options.peers / "bench.py"), "--peer", options.engines]
    command += ["--records", str(options.records), "--seconds", str(options.seconds), "--json", str(results)]
    environ = {"TIDEGATE": str(Path(sys.executable).with_name("tidegate")), **os.environ}
    harness = _harness_python(options.peers)
    if harness:
        command[0] = harness
    status = 0
    for workload in options.workloads.split(","):
        more = ["--workload", workload, "--mode", options.mode, "--repeat", str(options.repeat)]
        status |= subprocess.run([*command, *more], cwd=HERE.parent, env=environ, check=False).returncode
    rows = [json.loads(line) for line in results.read_text().splitlines() if line.strip()]
    print("\n".join(summarise(rows)))
    print(f"kept in {results.relative_to(HERE.parent)}")
    return 1 if status or any("error" in row for row in rows) else 0


def summarise(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Ratios against the raw loop of the same file, and the project's targets beside them."""
    lines = ["", "ratios of CPU seconds per million records against the raw client loop, same run"]
    for workload in sorted({row["workload"] for row in rows}):
        drains = [r for r in rows if r["workload"] == workload and r["mode"] == "drain" and r["commit_ms"] == 1000]
        cpu = {peer: _median(drains, peer, "cpu_s_per_m") for peer in {r["peer"] for r in drains}}
        rps = {peer: _median(drains, peer, "rps") for peer in cpu}
        raw = cpu.get(RAW)
        for peer, seconds in sorted(cpu.items(), key=lambda item: item[1] or 0):
            if seconds is None:
                lines.append(f"  {workload} {peer}: failed")
                continue
            ratio = f"{seconds / raw:.2f} x raw" if raw else "no raw run"
            aim = f" (target {TARGET_RATIO[workload]})" if peer == "tidegate" and workload in TARGET_RATIO else ""
            lines.append(
                f"  {workload} {peer}: {seconds:.2f} CPU s/M, {ratio}{aim}, {(rps[peer] or 0) / 1000:.0f} k rec/s"
            )
        lines += _latency_lines(rows, workload)
    return lines


def _latency_lines(rows: Sequence[dict[str, Any]], workload: str) -> list[str]:
    found = [r for r in rows if r["workload"] == workload and r["mode"] == "latency" and "p50_ms" in r]
    return [
        f"  {workload} {r['peer']} at {r['commit_ms']} ms: p50 {r['p50_ms']} ms, p99 {r['p99_ms']} ms"
        + (f" (target {TARGET_LATENCY_MS})" if r["peer"] == "tidegate" and r["commit_ms"] == 100 else "")
        for r in sorted(found, key=lambda r: (r["commit_ms"], r["p50_ms"]))
    ]


def _median(rows: Sequence[dict[str, Any]], peer: str, field: str) -> float | None:
    values = [float(row[field]) for row in rows if row["peer"] == peer and field in row]
    return statistics.median(values) if values else None


def _harness_python(peers: Path) -> str | None:
    """The harness has a virtual environment of its own when its setup.sh was run."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from common import WORK; print(WORK)"
    work = subprocess.run([sys.executable, "-c", code, str(peers)], capture_output=True, text=True, check=False)
    python = Path(work.stdout.strip()) / "venvs" / "harness" / "bin" / "python"
    return str(python) if python.exists() else None


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=HERE.parent.parent / "shared" / "peers")
    parser.add_argument("--engines", default=f"{RAW},kafka-streams,flink,tidegate")
    parser.add_argument("--workloads", default="W1,W2")
    parser.add_argument("--mode", choices=["drain", "latency", "both"], default="both")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
