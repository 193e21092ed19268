"""The tables of `compare.py`, from its lines of JSON, as a page has them between two markers."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

BEGIN: Final = "<!-- The tables up to the next marker are written by bench/compare.py --report FILE --into PAGE -->"
END: Final = "<!-- End of the tables that bench/compare.py writes -->"
RAW: Final = "raw"
TITLES: Final = {
    "W1": "Filter and select (W1)",
    "W2": "Running totals, every update emitted (W2)",
    "W3": "Tumbling windows of 10 s behind an exchange (W3)",
}

Row = dict[str, Any]


def describe_machine() -> Row:
    """Returns the day, the commit of this checkout, and the machine."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
        return ran.stdout.strip()

    changed = "-dirty" if git("status", "--porcelain", "--untracked-files=no") else ""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        if line.startswith("model name")
    ]
    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": git("rev-parse", "--short=8", "HEAD") + changed,
        "cpu": models[0] if models else platform.machine(),
        "cores_of_machine": len(models) or 1,
        "python": platform.python_version(),
    }


def render_report(rows: Sequence[Row]) -> str:
    """Returns all tables that the rows give. Runs that failed, or had too much other load, have no figures."""
    good = [row for row in rows if "error" not in row and not row["loaded"]]
    left_out = len(rows) - len(good)
    parts = [_caption(rows, good, left_out)] if good else ["There are no figures."]
    parts += [
        f"**{row['label']}, {row['workload']}, {row['measure']}: {row['error'].splitlines()[-1][-300:]}**"
        for row in rows
        if "error" in row
    ]
    for workload, title in TITLES.items():
        drains = [row for row in good if row["measure"] == "drain" and row["workload"] == workload]
        if drains:
            parts.append(f"### {title}\n\n{_drain_table(drains)}")
    latency = [row for row in good if row["measure"] == "latency"]
    if latency:
        parts.append(f"### Latency, p50 / p99 in ms\n\n{_paced_table(latency, _latency_column, _latency_cell)}")
    rates = [row for row in good if row["measure"] == "rates"]
    if rates:
        parts.append(f"### Cores at a constant rate\n\n{_paced_table(rates, _rate_column, _rate_cell)}")
    return "\n\n".join(parts)


def insert_report(page: Path, rows: Sequence[Row]) -> None:
    """Replaces what is between the markers of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} does not have both markers:\n{BEGIN}\n{END}")
    page.write_text(f"{before}{BEGIN}\n\n{render_report(rows)}\n\n{END}{after}", encoding="utf-8")


def _caption(rows: Sequence[Row], good: Sequence[Row], left_out: int) -> str:
    one = good[0]
    machines = sorted({f"{row['day']} at commit {row['commit']}" for row in good})
    records = sorted({row["records"] for row in good if "records" in row})
    sizes = " and ".join(f"{count:,}" for count in records)
    others = max((row["others_cores"] for row in good), default=0.0)
    text = (
        f"Measured on {' and '.join(machines)}, {one['cores_of_machine']} cores of {one['cpu']}, the broker on the "
        f"same machine; orders of about 190 bytes as JSON{f', {sizes} in a drain' if sizes else ''}, "
        f"{one['partitions']} partitions, commits or checkpoints every second where no other interval is named. "
        "Medians of the runs, with the lowest and the highest. Every result was checked. Other programs used "
        f"{others:.2f} cores at most."
    )
    if left_out:
        text += f" {left_out} of {len(rows)} runs failed or had too much other load, and are left out."
    return text


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["engine"] for row in rows if row["engine"] == RAW)) + sorted(
        {row["engine"] for row in rows} - {RAW}, key=lambda name: (not name.startswith("tidegate"), name)
    )


def _label(rows: Sequence[Row], name: str) -> str:
    label = next(row["label"] for row in rows if row["engine"] == name)
    return "**Tidegate**" if name == "tidegate" else str(label)


def _drain_table(rows: Sequence[Row]) -> str:
    raw = [row["cpu_s_per_m"] for row in rows if row["engine"] == RAW]
    lines = [
        "| | CPU s per million | x raw | k records/s | broker CPU s | resident MiB | start s | runs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in _names(rows):
        mine = [row for row in rows if row["engine"] == name]
        cpu = [row["cpu_s_per_m"] for row in mine]
        ratio = f"{statistics.median(cpu) / statistics.median(raw):.2f}" if raw else ""
        cells = [
            _label(rows, name),
            _spread(cpu, 2),
            ratio,
            _spread([row["records_per_s"] / 1000 for row in mine], 0),
            f"{statistics.median(row['broker_cpu_s_per_m'] for row in mine):.2f}",
            f"{statistics.median(row['resident_mib'] for row in mine):,.0f}",
            f"{statistics.median(row['start_s'] for row in mine):.1f}",
            str(len(mine)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: Sequence[float], digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _latency_column(row: Row) -> tuple[str, int, str]:
    every = f"{row['interval_ms']} ms" if row["interval_ms"] < 1000 else f"{row['interval_ms'] / 1000:g} s"
    return row["workload"], row["interval_ms"], f"{row['workload']}, commits every {every}"


def _latency_cell(rows: Sequence[Row]) -> str:
    return " / ".join(f"{statistics.median(row[share] for row in rows):,.0f}" for share in ("p50_ms", "p99_ms"))


def _rate_column(row: Row) -> tuple[str, int, str]:
    return (row["workload"], row["rate"], f"{row['workload']}, {row['rate']:,}/s") if row["rate"] else ("", 0, "idle")


def _rate_cell(rows: Sequence[Row]) -> str:
    return _spread([row["cores"] for row in rows], 2) if len(rows) > 1 else f"{rows[0]['cores']:.2f}"


def _paced_table(
    rows: Sequence[Row], column: Callable[[Row], tuple[str, int, str]], cell: Callable[[Sequence[Row]], str]
) -> str:
    columns = sorted({column(row) for row in rows})
    lines = [f"| | {' | '.join(title for *_, title in columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for name in _names(rows):
        cells = []
        for one in columns:
            mine = [row for row in rows if row["engine"] == name and column(row) == one]
            cells.append(cell(mine) if mine else "")
        lines.append(f"| {_label(rows, name)} | {' | '.join(cells)} |")
    return "\n".join(lines)
