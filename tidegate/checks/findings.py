"""Findings, the list of checks, and what all findings together mean for a start and for the guarantee. Pure.

docs/doctor.md is generated from the list of checks. The modules `judge_*.py` decide each finding.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from tidegate.config.errors import Problem, join_remedy
from tidegate.config.fields.base import Path
from tidegate.config.load import LoadedPipeline
from tidegate.errors import TidegateError

_RANKS: Final = (2, 4, 5, 1)
"""The order of exit codes if several findings prevent a start: what a person must fix precedes what may pass."""
NAMES_MAX: Final = 5


class Severity(Enum):
    """The meaning of a finding."""

    OK = "ok"
    UNKNOWN = "unknown"
    """This user may not see the value."""
    WARNING = "warning"
    """It works, with less margin than recommended."""
    PROBLEM = "problem"
    """The pipeline does not start, stops, cannot be read, or can lose or repeat records."""


class Check(msgspec.Struct, frozen=True):
    """One subject of the survey. The texts appear in docs/doctor.md."""

    title: str
    examines: str
    problem: str = ""
    """When it is a problem; empty if never."""
    warning: str = ""


class Finding(msgspec.Struct, frozen=True):
    """What a check found in one place."""

    check: str
    """The name of the check in CHECKS."""
    severity: Severity
    value: str
    """The actual value."""
    expected: str = ""
    """The expected value; empty if `value` contains it."""
    remedy: str = ""
    """The command that fixes it, or what a person must do."""
    place: Path = ()
    """Where the pipeline file requires it."""
    subject: str = ""
    """The topic or other resource that it concerns."""
    cluster: str = ""
    """The name of the cluster that it concerns; empty if it concerns a start, or this machine."""
    prevents_start: bool = False
    """True if a start with it fails even without `strict`."""
    exit_code: int = 2
    """The exit code of a start that it prevents: 1 if it may resolve itself."""
    cause: TidegateError | None = None


def describe_subject(loaded: LoadedPipeline, finding: Finding) -> str:
    """Describe what a finding concerns, with its cluster if the file has several: `orders on us`."""
    if not finding.cluster or not loaded.settings.clusters:
        return finding.subject
    return f"{finding.subject} on {finding.cluster}" if finding.subject else finding.cluster


def prevent_start(
    place: Path, value: str, remedy: str = "", exit_code: int = 2, cause: TidegateError | None = None
) -> Finding:
    """Create the finding of a problem that only concerns a start."""
    return Finding(
        "start",
        Severity.PROBLEM,
        value,
        remedy=remedy,
        place=place,
        prevents_start=True,
        exit_code=exit_code,
        cause=cause,
    )


def prevent_by(place: Path, error: TidegateError) -> Finding:
    """Create the finding of an error that a start would end with."""
    return prevent_start(place, error.message, exit_code=error.exit_code, cause=error)


def warn_of_start(place: Path, value: str, remedy: str = "") -> Finding:
    """Create the finding of something that a start only warns about."""
    return Finding("start", Severity.WARNING, value, remedy=remedy, place=place)


class StartRefused(TidegateError):
    """Nothing was started. The exit code is the most important one of the findings that prevent the start."""

    code = "start-refused"

    def __init__(self, loaded: LoadedPipeline, findings: Iterable[Finding]) -> None:
        preventing = find_preventing(findings, strict=loaded.settings.strict)
        self.findings = tuple((_describe(derive_problem(loaded, one)), one.cause) for one in preventing)
        """The findings that prevent the start, each as a line for the log with its original error."""
        self.exit_code = derive_exit_code(preventing)  # type: ignore[misc]  # a class attribute elsewhere
        super().__init__("\n".join(text for text, _ in self.findings))


def _describe(problem: Problem) -> str:
    return str(problem) if problem.path else join_remedy(problem.message, problem.remedy)


def find_preventing(findings: Iterable[Finding], *, strict: bool) -> list[Finding]:
    """Select the findings that prevent a start; with `strict: true` every problem does."""
    return [one for one in findings if one.prevents_start or (strict and one.severity is Severity.PROBLEM)]


def derive_exit_code(preventing: Iterable[Finding]) -> int:
    """Derive the exit code of a start that these findings prevent; 0 if there are none."""
    codes = {one.exit_code for one in preventing}
    return next((code for code in _RANKS if code in codes), max(codes, default=0))


def derive_problem(loaded: LoadedPipeline, finding: Finding, *alike: Finding) -> Problem:
    """Derive the problem at its place in the file; `alike` are findings that differ only in their subjects."""
    subjects = [f"`{subject}`" for one in (finding, *alike) if (subject := describe_subject(loaded, one))]
    named = ", ".join(subjects[:NAMES_MAX])
    named += f" and {len(subjects) - NAMES_MAX} more" if len(subjects) > NAMES_MAX else ""
    expected = f"; should be: {finding.expected}" if finding.expected else ""
    likewise = " (and likewise for the others)" if alike and finding.remedy else ""
    message = f"{named}: {finding.value}{expected}" if named else f"{finding.value}{expected}"
    return loaded.problem(finding.place, message, f"{finding.remedy}{likewise}")


def derive_problems(loaded: LoadedPipeline, findings: Sequence[Finding]) -> list[Problem]:
    """Derive the output of `validate --connect`: errors for findings that prevent a start, warnings for the rest.

    Warnings that differ only in their subjects are merged.
    """
    preventing = find_preventing(findings, strict=loaded.settings.strict)
    return [*(derive_problem(loaded, one) for one in preventing), *derive_warnings(loaded, findings)]


def derive_warnings(loaded: LoadedPipeline, findings: Iterable[Finding]) -> list[Problem]:
    """Derive the warnings of a start: problems that do not prevent it, and warnings."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    strict = loaded.settings.strict
    for one in findings:
        if one.severity in (Severity.WARNING, Severity.PROBLEM) and not find_preventing([one], strict=strict):
            key = (one.check, one.value, one.expected, () if describe_subject(loaded, one) else one.place)
            alike.setdefault(key, []).append(one)
    warnings = (derive_problem(loaded, *group) for group in alike.values())
    return [msgspec.structs.replace(one, severity="warning") for one in warnings]


CHECKS: Final[Mapping[str, Check]] = {
    "start": Check(
        "Start",
        "everything that `validate --connect` examines: topics, journal, state, registry, port, certificates",
        "a start would be refused",
        "what `validate --connect` warns of",
    ),
    "broker-version": Check(
        "Broker version",
        "whether every broker answers the requests that Tidegate sends (Kafka 3.3 or newer)",
        "a broker lacks one",
        "brokers have different versions",
    ),
    "brokers": Check(
        "Brokers",
        "how many there are",
        "they stop answering during the examination",
        "one: nothing survives its disk",
    ),
    "clock": Check(
        "Clock",
        "this machine's clock against the clock of the cluster's controller",
        warning="more than 5 s apart: limits on timestamps, and lag in seconds, are wrong by this",
    ),
    "transaction-timeout": Check(
        "Transaction timeout",
        "`checkpoints.transaction_timeout` against `transaction.max.timeout.ms` of the brokers",
        "the brokers allow less",
    ),
    "id-expiration": Check(
        "Expiration of ids",
        "`transactional.id.expiration.ms` of the brokers against the longest outage",
        "shorter than an unattended restart may take",
        "less than three days, so shorter than a weekend",
    ),
    "copies": Check(
        "Copies",
        "replication factor of every topic, and of Kafka's own logs of transactions and positions",
        "one copy in a cluster of several brokers: lost with its disk",
        "two copies",
    ),
    "min-in-sync": Check(
        "Acknowledging copies",
        "`min.insync.replicas` of the same topics",
        "1 where there are more copies: one acknowledges what no other has; or more than there are copies: nothing "
        "can be written",
        "as many as there are copies: one unavailable broker stops writes",
    ),
    "unclean-election": Check(
        "Unclean election",
        "`unclean.leader.election.enable` of the same topics",
        "on: a copy that lacks acknowledged records can become the leader",
        "on, where there is one copy",
    ),
    "retention": Check(
        "Retention",
        "`retention.ms` and `retention.bytes` of inputs (they must outlive an outage) and outputs (records of "
        "transactions that the broker aborted in an outage are read back from them)",
        "shorter than an unattended restart may take",
        "less than three days, so shorter than a weekend; or limited by size; or records get old timestamps, which "
        "are deleted soon",
    ),
    "cleanup": Check(
        "Compaction",
        "`cleanup.policy` against keys, tombstones and salvage",
        "compacted, and the sink writes records without a key",
        "the sink writes tombstones, and nothing removes what they delete; or an output is compacted before an outage "
        "may be over; or an input is compacted, so what was overwritten may not be read",
    ),
    "timestamps": Check(
        "Timestamps",
        "`message.timestamp.type`, `.before.max.ms` and `.after.max.ms` (before Kafka 4.0 `.difference.max.ms`) of "
        "outputs; the type of inputs whose event "
        "time is Kafka's",
        warning="the topic replaces the timestamps that the sink sets, or rejects those that are a day old or an hour "
        "ahead; or an input stamps records on arrival",
    ),
    "record-size": Check(
        "Record size",
        "`max.message.bytes` of outputs against inputs and the client's `message.max.bytes`",
        warning="a record that can be read may be too large to be written",
    ),
    "permissions": Check(
        "Permissions",
        "every right that is needed, tested by a request that changes nothing",
        "one is missing that the pipeline cannot do without",
        "one is missing that only checks, lag tools or repairs need",
    ),
    "other-ids": Check(
        "Transactional ids",
        "transactional ids that begin with the pipeline's name and a dot",
        "another checkpoint directory has open transactions under this name",
        "some are not Tidegate's: another program uses the prefix",
    ),
    "other-writers": Check(
        "Other writers",
        "idempotent and transactional producers that are known to the outputs and are not of this pipeline",
        warning="there are some: their records are among the output",
    ),
    "open-transactions": Check(
        "Hanging transactions",
        "open transactions in the outputs, which stop readers of committed records",
        "one that no process will end",
        "one of another program that is open for more than a minute, or whose owner cannot be seen; one of this "
        "pipeline whose marker is lost: a start writes it",
    ),
    "checkpoint-directory": Check(
        "Checkpoint directory",
        "writing, reading, refusing a second writer and deleting, all tested; the type of the file system",
        "something fails; or it is in memory",
        "it is on a local disk, and executors may be on other machines",
    ),
    "disk-space": Check(
        "Disk space",
        "free space and inodes of the checkpoint directory and of the directory for temporary files",
        "less than 100 MiB or 1,000 inodes",
        "less than 1 GiB, or than three times what the directory holds now",
    ),
    "open-files": Check(
        "Open files",
        "the hard limit (RLIMIT_NOFILE) against what daemon and slots of this machine open",
        "less than that",
        "less than twice that",
    ),
    "memory": Check(
        "Memory",
        "free memory of this machine or container against the slots that run here",
        warning="less than about 150 MiB for each slot and 400 MiB for daemon and JVM",
    ),
    "cpus": Check("Processors", "processors against slots that run here", warning="more than two slots for each"),
    "executors": Check(
        "Executors",
        "with `--spark`: a session is started, its slots are counted, and the checkpoint directory is tested from each",
        "there are fewer than `parallelism`, they do not start, or one sees another directory",
    ),
}


def is_kept(findings: Collection[Finding]) -> bool:
    """Decide whether the guarantee in the file, `checkpoints.mode`, holds: there is no problem."""
    return not any(one.severity is Severity.PROBLEM for one in findings)


def render_checks_table() -> str:
    """Render the table of docs/doctor.md, one line per check, without a newline at the end."""
    lines = ["| check | examines | problem | warning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {one.examines} | {one.problem} | {one.warning} |" for name, one in CHECKS.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render_checks_table() + "\n")
