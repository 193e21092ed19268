"""Causes that another part of the daemon has found out already: the rules use its facts and texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.config.fields.counts import render_count
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.daemon.diagnosis.situation import FoundCause, Situation, render_span
from tidegate.daemon.status import DiagnosisSeverity, OperatorStatus, PipelineState

LOOP_FAILURES: Final = 3
LOOP_S: Final = 600.0
"""So many failures in this time are a loop: the usual restart after a lost machine is one."""
LOOP_RECENT_S: Final = 180.0
"""A loop has ended if no attempt has failed for this long: three times the longest default pause (`restart.max`)."""
RECENT_S: Final = 120.0
"""How long a restart is worth mentioning: its consequences, such as a lag, are over by then."""
HOLD_S: Final = 10.0
"""Sources are on hold for moments whenever one is ahead of another; that is what holds are for."""
OLD_SHARE: Final = 0.6
"""A transaction that has lived for this share of its timeout will hardly be committed by an ordinary checkpoint."""
CLOCK_S: Final = 600.0
BAD_S_MIN: Final = 10.0
BAD_PER_MINUTE_MIN: Final = 10
"""Fewer bad records are counted, but are no news: input that is never quite clean would always show it."""
BAD_SHARE: Final = 0.1
"""Beyond this share of the records, the format or the schema is wrong rather than the record."""
LEFT_OUT_REMEDY: Final = (
    "see the warnings in the log, which name kind and place, and correct the format, the schema or the producers; "
    "`bad_records: dead-letter` of the source keeps such records for a replay"
)
"""Instead of the remedy of the rule, which speaks of dead letters."""
LATE_SHARE: Final = 0.01
LATE_PER_MINUTE_MIN: Final = 10
MINUTE_S: Final = 50.0
"""The oldest sample is between 50 and 60 s old."""
CAUSE_CHARACTERS_MAX: Final = 400
BETWEEN: Final = frozenset({PipelineState.RESTARTING, PipelineState.RESTORING})


def find_silent_brokers(situation: Situation) -> Iterator[FoundCause]:
    """Finds clusters of which no broker responds."""
    oldest_s, limits = situation.facts.status.oldest_transaction_seconds, situation.facts.limits
    for cluster, outage in situation.facts.conditions.outages.items():
        evidence: dict[str, float | str] = {"unavailable_seconds": round(outage.unavailable_s, 1)}
        if oldest_s is not None:
            evidence["oldest_transaction_seconds"] = round(oldest_s, 1)
            evidence["transaction_timeout_seconds"] = limits.transaction_timeout_s
        yield FoundCause(
            sentence=f"{outage.why} (for {render_span(outage.unavailable_s)})", cluster=cluster, evidence=evidence
        )


def find_given_up(situation: Situation) -> Iterator[FoundCause]:
    """Finds a daemon that ends because of an error."""
    status = situation.facts.status
    if status.state is PipelineState.FAILED:
        yield FoundCause(sentence=f"the daemon has given up: {_shorten(status.reason)}")


def find_restart_loop(situation: Situation) -> Iterator[FoundCause]:
    """Finds attempts that fail again and again."""
    failures, span_s = _find_loop(situation)
    if not failures:
        return
    newest = failures[0]
    same = sum(one.code == newest.code for one in failures)
    causes = "all with the same error" if same == len(failures) else f"{same} of them with the same error as the last"
    yield FoundCause(
        sentence=f"{len(failures)} attempts have failed in {render_span(max(span_s, 1.0))}, {causes}, `{newest.code}`: "
        f"{_shorten(newest.cause)}",
        evidence={
            "failures": len(failures),
            "same_error": same,
            "code": newest.code,
            "longest_run_seconds": round(max(one.ran_ms for one in failures) / 1000, 1),
        },
    )


def _find_loop(situation: Situation) -> tuple[list[FailureRecord], float]:
    """Returns the failures of a loop, newest first, and the time since the first one; none if there is no loop."""
    facts = situation.facts
    recent = [
        (one, age_s)
        for one, age_s in zip(facts.failures, facts.failure_ages_s, strict=True)
        if one.followed_by is FollowedBy.RESTART and age_s < LOOP_S
    ]
    if len(recent) < LOOP_FAILURES or recent[0][1] > LOOP_RECENT_S:
        return [], 0.0
    return [one for one, _ in recent], recent[-1][1]


def find_restart(situation: Situation) -> Iterator[FoundCause]:
    """Finds the last failed attempt, while it is recent or the next one does not run yet."""
    facts = situation.facts
    if not facts.failures or facts.failures[0].followed_by is not FollowedBy.RESTART or _find_loop(situation)[0]:
        return
    failure, age_s, status = facts.failures[0], facts.failure_ages_s[0], facts.status
    between = status.state in BETWEEN
    if age_s > RECENT_S and not between:
        return
    what = "an attempt" if failure.attempt is None else f"attempt {failure.attempt}"
    now = "the next one is not running yet" if between else f"attempt {status.attempt} runs"
    yield FoundCause(
        sentence=f"{what} failed {render_span(age_s)} ago, {now}: {_shorten(failure.cause)}",
        evidence={
            "failed_seconds_ago": round(age_s, 1),
            "code": failure.code,
            "ran_seconds": round(failure.ran_ms / 1000, 1),
            "restarts": status.restarts,
        },
    )


def find_missing_schemas(situation: Situation) -> Iterator[FoundCause]:
    """Finds a registry that does not respond while records wait for it."""
    conditions = situation.facts.conditions
    if conditions.schemas:
        yield FoundCause(sentence=conditions.schemas, evidence={"schemas_waiting": conditions.schemas_waiting})


def find_blocked_readers(situation: Situation) -> Iterator[FoundCause]:
    """Finds transactions that block readers of an output."""
    for cluster, text in situation.facts.conditions.hanging.items():
        if text:
            sentence, _, remedy = text.partition(". ")  # `tell_left` says first what is there, then what to do
            yield FoundCause(sentence=sentence, remedy=remedy, cluster=cluster)


def find_holds(situation: Situation) -> Iterator[FoundCause]:
    """Finds sources on hold."""
    for one in situation.facts.status.operators:
        if one.on_hold_seconds is not None and one.on_hold_seconds >= HOLD_S:
            yield FoundCause(
                sentence=f"source {one.name} has been on hold for {render_span(one.on_hold_seconds)}, {one.on_hold}",
                step=one.name,
                cluster=situation.facts.plan.clusters.get(one.name),
                evidence={"on_hold_seconds": round(one.on_hold_seconds, 1)},
            )


def find_stalled_watermarks(situation: Situation) -> Iterator[FoundCause]:
    """Finds sources whose watermark waits for a partition."""
    for one in situation.facts.status.operators:
        if one.stalled_seconds is None:
            continue
        evidence: dict[str, float | str] = {
            "partition": one.held_back_by,
            "stalled_seconds": round(one.stalled_seconds, 1),
        }
        if one.event_time_lag_seconds is not None:
            evidence["event_time_lag_seconds"] = round(one.event_time_lag_seconds, 1)
        yield FoundCause(
            sentence=f"{one.held_back_by} has had no newer event time for {render_span(one.stalled_seconds)} and "
            f"holds back the watermark of source {one.name}: windows, joins and timers wait",
            step=one.name,
            slot=_find_holding_slot(one),
            cluster=situation.facts.plan.clusters.get(one.name),
            evidence=evidence,
        )


def _find_holding_slot(source: OperatorStatus) -> int | None:
    """Returns the slot with the lowest watermark, which reads the partition; None if several have it."""
    waited_for = [one for one in source.subtasks if not one.idle]
    lowest = [one.slot for one in waited_for if one.watermark_ms == source.watermark_ms]
    return lowest[0] if len(lowest) == 1 else None


def find_old_transaction(situation: Situation) -> Iterator[FoundCause]:
    """Finds a transaction that the broker will abort soon."""
    age_s, timeout_s = situation.facts.status.oldest_transaction_seconds, situation.facts.limits.transaction_timeout_s
    if age_s is not None and age_s > OLD_SHARE * timeout_s and age_s > 2 * situation.facts.limits.interval_s:
        yield FoundCause(
            sentence=f"the oldest open transaction is {render_span(age_s)} old, and the broker aborts it after "
            f"{render_span(timeout_s)}: no checkpoint has completed for that long",
            evidence={
                "oldest_transaction_seconds": round(age_s, 1),
                "transaction_timeout_seconds": timeout_s,
            },
        )


def find_clock_steps(situation: Situation) -> Iterator[FoundCause]:
    """Finds the last time that the wall clock was set."""
    recent = [one for one in situation.facts.clock_steps if situation.facts.at_s - one.at_s < CLOCK_S]
    if recent:
        step, ago_s = recent[-1], situation.facts.at_s - recent[-1].at_s
        way = "forward" if step.step_s > 0 else "back"
        yield FoundCause(
            sentence=f"the wall clock of the daemon's machine was set {way} by {render_span(abs(step.step_s))}, "
            f"{render_span(ago_s)} ago: times before and after it are not comparable",
            evidence={"step_seconds": round(step.step_s, 1), "steps": len(recent)},
        )


def find_bad_records(situation: Situation) -> Iterator[FoundCause]:
    """Finds bad records of the last minute, or since the attempt runs."""
    sample, status = next(iter(situation.facts.samples), None), situation.facts.status
    if sample is None or (seconds := situation.facts.at_s - sample.at_s) < BAD_S_MIN:
        return
    bad, letters = status.bad_records - sample.status.bad_records, status.dead_letters - sample.status.dead_letters
    read = status.records_in - sample.status.records_in
    if bad < BAD_PER_MINUTE_MIN:
        return
    before = {one.name: one.failed for one in sample.status.operators}
    failed = {one.name: one.failed - before.get(one.name, 0) for one in status.operators}
    step = max(failed, key=lambda name: failed[name], default=None)
    kinds = situation.facts.conditions.bad_kinds.get(step, {}) if step is not None else {}
    kind = max(kinds, key=lambda one: kinds[one], default="")
    share = bad / max(read, bad)
    became = f"{letters:,} of them became dead letters" if letters else "they were left out"
    mostly = "" if step is None else f", most of them in step {step}" + (f", {kind}" if kind else "")
    yield FoundCause(
        sentence=f"{bad:,} of {render_count(max(read, bad), 'record')} of the last {seconds:.0f} s could not be "
        f"processed ({share:.1%}{mostly}): {became}",
        remedy="" if letters else LEFT_OUT_REMEDY,
        severity=DiagnosisSeverity.PROBLEM if share >= BAD_SHARE else None,
        step=step,
        evidence={
            "bad_records": bad,
            "dead_letters": letters,
            "records": read,
            "bad_ratio": round(share, 4),
            "kind": kind,
        },
    )


def find_late_rows(situation: Situation) -> Iterator[FoundCause]:
    """Finds steps that have left out late rows in the last minute."""
    sample = situation.since(MINUTE_S)
    before = {} if sample is None else {one.name: one for one in sample.status.operators}
    for one in situation.facts.status.operators:
        if (then := before.get(one.name)) is None:
            continue
        late, rows = one.late - then.late, one.rows_in - then.rows_in
        share = late / max(rows, late, 1)
        if late >= LATE_PER_MINUTE_MIN and share >= LATE_SHARE:
            yield FoundCause(
                sentence=f"step {one.name} has left out {render_count(late, 'late row')} in the last minute "
                f"({share:.1%} of its rows): their windows were already closed",
                step=one.name,
                evidence={"late_rows": late, "rows": rows, "late_ratio": round(share, 4)},
            )


def _shorten(text: str) -> str:
    """Cuts a cause to its first line; the log has all of it."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= CAUSE_CHARACTERS_MAX else f"{line[: CAUSE_CHARACTERS_MAX - 4]} ..."
