"""What a person sees of the simulation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.waiting import wait_until
from tidegate.simulation import account, campaign, world
from tidegate.simulation.campaign import decode_schedule, play_seeds
from tidegate.simulation.command import simulate
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import play

pytestmark = pytest.mark.slow


def test_the_last_line_counts_and_success_is_0() -> None:
    done = CliRunner().invoke(simulate, ["--seeds", "1", "--first", "11"])
    assert done.exit_code == 0, done.output
    last = done.output.strip().splitlines()[-1]
    assert re.fullmatch(r"[01] schedules, 0 violations, \d+ faults, \d+\.\d schedules/s", last)


def test_a_run_continues_the_table_of_a_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is played: each seed has counts of its own. Processes play in the test before."""
    table = tmp_path / "table.json"

    def play_here(first: int, count: int, *_: object, **__: object) -> Iterator[tuple[campaign.CampaignCounts, float]]:
        counts = campaign.CampaignCounts()
        for seed in range(first, first + count):
            reach = {"acks: late": seed}
            one = campaign.CampaignCounts(drawn=1, played=1, counted=1, faults=seed, attempts=seed, reach=reach)
            counts = counts.plus(one)
            yield counts, 1.0

    monkeypatch.setattr("tidegate.simulation.command.play_in_processes", play_here)

    def run(*options: str) -> tuple[int, list[str]]:
        done = CliRunner().invoke(simulate, ["--table", str(table), *options])
        return done.exit_code, done.output.splitlines()

    assert run("--seeds", "1", "--first", "11")[0] == 0
    code, lines = run("--seeds", "2")
    assert (code, lines[1]) == (0, f"1 of 2 are in {table}")
    assert lines[-2].startswith("played 2 from seed 11: ")
    at_once = CliRunner().invoke(simulate, ["--seeds", "2", "--first", "11"]).output.splitlines()
    assert lines[2:-1] == at_once[1:-1], "the reach of both runs, as if they were one"
    assert run("--seeds", "2")[1][2:-1] == at_once[1:-1], "nothing is left to play"


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ('{"first": 11, "only": "", "counts": {}}', ["--first", "12"], "it is of seeds from 11 on;"),
        ('{"first": 11, "only": "windows", "counts": {}}', [], "it is of seeds from 11 on with --only windows;"),
        ('{"first": 1', [], "it is not a table of this command"),
        ('{"rows": []}', [], "it is not a table of this command"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, content: str, options: list[str], words: str) -> None:
    table = tmp_path / "table.json"
    table.write_text(content)
    done = CliRunner().invoke(simulate, ["--table", str(table), *options])
    assert (done.exit_code, table.read_text()) == (2, content)
    assert words in " ".join(done.output.split())


def test_a_table_that_cannot_be_written_is_reported_before_anything_is_played(tmp_path: Path) -> None:
    done = CliRunner().invoke(simulate, ["--table", str(tmp_path / "missing" / "table.json")])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "table.json': No such file or directory" in done.output


@pytest.mark.parametrize("options", [["--seeds", "0"], ["--processes", "-1"]])
def test_less_than_one_schedule_or_process_is_refused(options: list[str]) -> None:
    done = CliRunner().invoke(simulate, options)
    assert done.exit_code == 2
    assert "is not in the range x>=1" in done.output


def test_processes_end_with_the_command_however_it_ends() -> None:
    command = [sys.executable, "-m", "tidegate", "simulate", "--seeds", "5000", "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(_players_of(process.pid)) == 2, "two processes that play")
        players = _players_of(process.pid)
        process.kill()
    wait_until(lambda: not any(map(_is_running, players)), "the end of both")


def _players_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_schedules_without_windows_are_passed_over_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []
    empty = play(msgspec.structs.replace(draw_schedule(11), faults=()))

    def note(schedule: world.Schedule) -> world.ScheduleResult:
        played.append(schedule.seed)
        return msgspec.structs.replace(empty, schedule=schedule)

    monkeypatch.setattr(campaign, "play", note)
    with_windows = [seed for seed in range(11, 16) if draw_schedule(seed).workload.windows is not None]
    assert 0 < len(with_windows) < 5
    counts = play_seeds(11, 5, only="windows")
    assert (counts.drawn, counts.played) == (5, len(with_windows))
    assert played == with_windows


@pytest.mark.deep
def test_a_violation_is_told_with_its_story_and_the_smallest_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "check_output", lambda *_, **__: ["planted problem"])
    monkeypatch.setattr("tidegate.simulation.campaign.SHRINK_RUNS_MAX", 6)
    counts = play_seeds(1, 1)
    assert counts.failed == (1,)
    story = counts.stories[0]
    assert "planted problem" in story
    assert "faults that happened:" in story
    smallest = decode_schedule(story[story.index("\n{") :])
    assert smallest.seed == 1


def test_a_violation_makes_the_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = campaign.CampaignCounts(played=1, failed=(7,), stories=("what happened",))
    monkeypatch.setattr("tidegate.simulation.command.play_in_processes", lambda *_, **__: iter([(failed, 1.0)]))
    done = CliRunner().invoke(simulate, ["--seeds", "1"])
    assert done.exit_code == 1
    assert "what happened" in done.output
    assert "failed seeds: 7" in done.output


def test_a_long_run_tells_how_far_it_is_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    tallies = [
        (campaign.CampaignCounts(played=played), seconds) for played, seconds in ((50, 10.0), (150, 30.0), (200, 40.0))
    ]
    monkeypatch.setattr("tidegate.simulation.command.play_in_processes", lambda *_, **__: iter(tallies))
    done = CliRunner().invoke(simulate, ["--seeds", "200"])
    assert done.stderr == "150 of 200 played, 0 violations, 5.0 schedules/s\n"


def test_of_windows_alone_it_tells_how_many_seeds_it_has_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven in ten are passed over, so what was played never comes near the number of seeds."""
    tallies = [(campaign.CampaignCounts(drawn=150, played=45), 30.0)]
    monkeypatch.setattr("tidegate.simulation.command.play_in_processes", lambda *_, **__: iter(tallies))
    done = CliRunner().invoke(simulate, ["--seeds", "200", "--only", "windows"])
    assert done.stderr == "150 of 200 seeds, 45 with windows played, 0 violations, 1.5 schedules/s\n"
