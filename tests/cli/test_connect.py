"""`validate --connect` asks about the very start that a run would be: with the options that it would be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.values import IDENTITY, ME, completed
from tests.support.certificates import Authority
from tests.testing.changed_pipeline import HEAD
from tests.testing.test_changed_pipelines import TOTALS
from tidegate.checks.findings import Finding
from tidegate.cli.main import run_command
from tidegate.coordinator.journal_state import EntryMissing
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.daemon.preflight import StoredTarget
from tidegate.daemon.restore_point import RestoreOption, StartOptions
from tidegate.ids import JournalSequence, OperatorName
from tidegate.journal.journal import Journal
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import journal_name


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ([], StartOptions()),
        (["--begin-anew"], StartOptions(begin_anew=True)),
        (
            ["--restore=/saved", "--repeat-output", "--reset=sums"],
            StartOptions(
                RestoreOption("/saved", repeat_output=True),
                command_line=CommandLineDirectives(reset={OperatorName("sums"): ""}),
            ),
        ),
    ],
    ids=["nothing", "begin", "restore"],
)
def test_connect_asks_with_the_options_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], options: StartOptions
) -> None:
    """The chart's check refused every upgrade with `start.beginAnew`: it asked without."""
    asked = []

    async def check(*given: object, **_named: object) -> list[object]:
        target = given[2]
        assert isinstance(target, StoredTarget)
        asked.append(target._options)
        return []

    monkeypatch.setattr("tidegate.cli.doctor.survey", check)
    file = tmp_path / "shop.yaml"
    head = HEAD.replace("/nowhere/shop", str(tmp_path / "checkpoints"))
    file.write_text(f"{head}http: {{port: 0}}\n{TOTALS}", encoding="utf-8")
    assert run_command(["validate", "--connect", *words, str(file)]) == 0
    assert asked == [options]


def test_connect_reads_a_journal_with_a_gap_as_its_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that the refusal names led to the same refusal, though the run takes them."""
    refused = []

    async def check(
        _loaded: object, _plan: object, target: StoredTarget, *_more: object, **_named: object
    ) -> list[object]:
        try:
            await target.read_journal()
        except EntryMissing as error:
            refused.append(error.message)
        return []

    monkeypatch.setattr("tidegate.cli.doctor.survey", check)
    directory = tmp_path / "checkpoints"
    journal = Journal(LocalStorage(str(directory)), ME, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    for number in (1, 2):
        journal.append_checkpoint(completed(number))
    (directory / journal_name(JournalSequence(1))).unlink()
    file = tmp_path / "shop.yaml"
    file.write_text(f"{HEAD.replace('/nowhere/shop', str(directory))}http: {{port: 0}}\n{TOTALS}", encoding="utf-8")
    words = ["--restore=2", "--repeat-output"]
    assert run_command(["validate", "--connect", *words, str(file)]) == 0
    assert refused == []
    for fewer in ([], words[:1], ["--begin-anew"]):
        run_command(["validate", "--connect", *fewer, str(file)])
        assert "start with --restore 2 --repeat-output" in refused.pop()


@pytest.mark.slow
def test_connect_refuses_a_missing_certificate_and_warns_of_one_that_expires_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def survey(*_given: object, known: list[Finding], **_named: object) -> list[Finding]:
        return known

    monkeypatch.setattr("tidegate.cli.doctor.survey", survey)
    own = Authority(tmp_path).sign("daemon", days=2)
    file = tmp_path / "shop.yaml"
    head = HEAD.replace("/nowhere/shop", str(tmp_path / "checkpoints"))
    tls = f"http: {{port: 0, tls: {{certificate: {own.certificate}, key: {own.key}}}}}\n"
    file.write_text(f"{head}{tls}{TOTALS}", encoding="utf-8")
    assert run_command(["validate", "--connect", str(file)]) == 0
    warned = capsys.readouterr().out
    assert f"warning: http.tls.certificate: the certificate {own.certificate} expires at 2" in warned
    assert "renew it" in warned
    own.certificate.unlink()
    assert run_command(["validate", "--connect", str(file)]) == 2
    refused = capsys.readouterr().out
    assert f"http.tls.certificate: {own.certificate} (http.tls.certificate) cannot be used: No such file" in refused


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--restore="], "--restore is empty"),
        (["--repeat-output"], "--repeat-output needs --restore"),
        (["--begin-anew", "--restore=1"], "choose one"),
    ],
)
def test_words_about_a_start_that_contradict_themselves_are_wrong_usage(
    capsys: pytest.CaptureFixture[str], command: str, words: list[str], told: str
) -> None:
    assert run_command([command, *words, "shop.yaml"]) == 2
    assert told in capsys.readouterr().err
