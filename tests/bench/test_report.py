"""The tables of the benchmarks come from rows of JSON and replace those of a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.report import BEGIN, END, insert_report, render_report

MACHINE = {"day": "2026-11-30", "commit": "12345678", "cpu": "some", "cores_of_machine": 2}


def drain(engine: str, cpu_s: float, **more: Any) -> dict[str, Any]:
    """Returns a row of a drain."""
    return {
        "engine": engine,
        "label": engine.title(),
        "measure": "drain",
        "workload": "W1",
        "interval_ms": 1000,
        "partitions": 4,
        "records": 1_000_000,
        "cpu_s_per_m": cpu_s,
        "records_per_s": 500_000,
        "broker_cpu_s_per_m": 0.25,
        "others_cores": 0.05,
        "resident_mib": 700,
        "start_s": 5.0,
        "loaded": False,
        **MACHINE,
        **more,
    }


def paced(engine: str, measure: str, **more: Any) -> dict[str, Any]:
    """Returns a row of latency or cores."""
    return {**drain(engine, 0.0), "measure": measure, **more}


def test_medians_and_ratios_leave_out_failed_and_loaded_runs() -> None:
    rows = [drain("raw", 1.0), drain("raw", 3.0), drain("raw", 2.0), drain("tidegate", 1.0)]
    rows += [drain("tidegate", 9.0, loaded=True), drain("flink", 0.0, error="the program ended")]
    text = render_report(rows)
    assert "| Raw | 2.00 (1.00 to 3.00) | 1.00 |" in text
    assert "| **Tidegate** | 1.00 (1.00 to 1.00) | 0.50 |" in text
    assert "2026-11-30 at commit 12345678" in text
    assert "2 of 6 runs" in text
    assert "**Flink, W1, drain: the program ended**" in text


def test_latency_and_rates_have_a_column_for_each_setting() -> None:
    rows = [paced("tidegate", "latency", rate=5000, interval_ms=every, p50_ms=80, p99_ms=140) for every in (1000, 100)]
    rows += [paced("tidegate", "rates", rate=rate, cores=0.2) for rate in (200, 10_000, 0)]
    text = render_report(rows)
    assert "| | W1, commits every 100 ms | W1, commits every 1 s |" in text
    assert "| **Tidegate** | 80 / 140 | 80 / 140 |" in text
    assert "| | idle | W1, 200/s | W1, 10,000/s |" in text


def test_a_page_gets_its_tables_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\n\nold\n\n{END}\n\nafter\n")
    insert_report(page, [drain("raw", 1.0)])
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n\nMeasured on")
    assert text.endswith(f"\n\n{END}\n\nafter\n")
    assert "old" not in text


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a page")
    with pytest.raises(SystemExit, match="does not have both markers"):
        insert_report(page, [drain("raw", 1.0)])
