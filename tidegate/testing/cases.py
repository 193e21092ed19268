"""Runs a case twice: once as it is, and once with a restart in the middle, which must not change the output."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.config.cases import CaseSettings, ExpectedSet
from tidegate.config.load import LoadedPipeline
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName, VertexId
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.gates import derive_turns
from tidegate.plan.graph import Plan
from tidegate.testing.compare import Difference, Record, compare, compare_runs, derive_expected, derive_records
from tidegate.testing.feed import derive_ends, derive_events, plain_key_options, plain_options
from tidegate.testing.playing import Output, PlayedInput, Run, open_code

SKIPPED_SHOWN: Final = 5


class CaseFailure(msgspec.Struct, frozen=True):
    """One reason why a case fails. `difference` is set if records differ; `sink` is empty if no sink is concerned."""

    message: str
    sink: str = ""
    difference: Difference | None = None


class CaseResult(msgspec.Struct, frozen=True):
    """The result of a case. It has passed if there are no failures."""

    case: CaseSettings
    failures: tuple[CaseFailure, ...]
    seconds: float
    output: dict[str, list[Record]]
    """Sink -> its records in readable form; empty if the pipeline stopped."""

    @property
    def passed(self) -> bool:
        """True if the case has passed."""
        return not self.failures


def expects_nothing(case: CaseSettings) -> bool:
    """Returns whether the case states no expectation."""
    return not case.expect and not case.model_fields_set & {"bad_records", "late", "fails"}


class CaseRunner:
    """Runs the cases of one file. `parallelism` applies to cases that do not set their own."""

    def __init__(self, loaded: LoadedPipeline, plan: Plan, parallelism: int | None = None) -> None:
        self._sources = loaded.settings.sources
        self._plan = plan
        self._options, self._key_options = plain_options(plan), plain_key_options(plan)
        self._turns = derive_turns(plan)
        self._parallelism = parallelism
        self._code = open_code(loaded)
        sinks = {sink.name: sink for sink in plan.operators(SinkOperator)}
        self._sinks: dict[str, SinkOperator] = {name: sinks[OperatorName(name)] for name in loaded.settings.sinks}

    def run(self, case: CaseSettings) -> CaseResult:
        """Runs a case with and without a restart. Compares the output with the expectations, and the two runs."""
        started = time.perf_counter()
        try:
            written, failures = self._judge(case)
        except TidegateError as error:
            failures = self._judge_stop(case, error)
            return CaseResult(case, tuple(failures), time.perf_counter() - started, {})
        output: dict[str, list[Record]] = {
            name: derive_records(written.get(sink.name, ()), sink) for name, sink in self._sinks.items()
        }
        return CaseResult(case, tuple(failures), time.perf_counter() - started, output)

    def _judge(self, case: CaseSettings) -> tuple[Output, list[CaseFailure]]:
        events = derive_events(case.given, self._sources, self._options, self._key_options, self._turns)
        skipped: list[str] = []
        ends = derive_ends((one.record for one in events if one.record is not None), self._sources.values())
        run = Run(self._plan_of(case), PlayedInput(events, ends, case.begins_ms), skipped.append, self._code)
        played = run.play()
        if case.fails is not None:
            return played.written, [CaseFailure(f"the pipeline did not fail; expected a message with {case.fails!r}")]
        failures = [
            *self._compare(case, played.written),
            *_judge_counts("bad records", case.bad_records, played.bad, skipped),
            *_judge_counts("late records", case.late, played.late, ()),
        ]
        if played.notes and any(one.difference is not None for one in failures):
            failures.append(CaseFailure("\n".join(["by the way:", *played.notes])))
        if not failures:
            unordered = [name for name, expected in case.expect.items() if isinstance(expected, ExpectedSet)]
            failures += compare_restarted(self._sinks, played.written, run, unordered)
        return played.written, failures

    def _plan_of(self, case: CaseSettings) -> Plan:
        given = "parallelism" in case.model_fields_set or self._parallelism is None
        slots = case.parallelism if given else self._parallelism
        assert slots is not None
        return msgspec.structs.replace(self._plan, parallelism=min(slots, self._plan.max_parallelism))

    def _compare(self, case: CaseSettings, written: Output) -> list[CaseFailure]:
        failures: list[CaseFailure] = []
        if expects_nothing(case):
            failures.append(
                CaseFailure("the case has no `expect`; add it, for example `SINK: []`, which shows what the sink gets")
            )
        for name, expected in case.expect.items():
            sink = self._sinks[name]
            ordered = not isinstance(expected, ExpectedSet)
            wanted = expected.set_ if isinstance(expected, ExpectedSet) else expected
            actual = derive_records(written.get(sink.name, ()), sink)
            difference = compare([derive_expected(one) for one in wanted], actual, ordered=ordered)
            if difference is not None:
                failures.append(CaseFailure(_describe(len(wanted), len(actual)), name, difference))
        return failures

    @staticmethod
    def _judge_stop(case: CaseSettings, error: TidegateError) -> list[CaseFailure]:
        if case.fails is not None and case.fails in error.message:
            return []
        expected = "" if case.fails is None else f"; expected a message with {case.fails!r}"
        return [CaseFailure(f"the pipeline fails: {error.message}{expected}")]


def compare_restarted(
    sinks: Mapping[str, SinkOperator], plain: Output, run: Run, unordered: Collection[str]
) -> list[CaseFailure]:
    """Runs once more with a restart, and returns how the output differs from `plain`.

    Records of a sink in `unordered` are compared without their order, and so are those of `find_unordered`.
    """
    try:
        restarted = run.play_with_restart()
    except TidegateError as error:
        return [CaseFailure(f"after a restart in the middle of the case, the pipeline fails: {error.message}")]
    message = "a restart in the middle of the case changes the result: - without the restart, + with it"
    if run.user_code:
        message += f"; the code of {', '.join(run.user_code)} must keep its state in a Value, List, Map or Timer"
    failures: list[CaseFailure] = []
    mixed = find_unordered(run.plan)
    for name, sink in sinks.items():
        before = derive_records(plain.get(sink.name, ()), sink)
        after = derive_records(restarted.get(sink.name, ()), sink)
        difference = compare_runs(before, after, ordered=name not in unordered and sink.name not in mixed)
        if difference is not None:
            failures.append(CaseFailure(message, name, difference))
    return failures


def find_unordered(plan: Plan) -> frozenset[OperatorName]:
    """Returns the sinks that rows of one source reach on several paths, as behind a join of an input with itself.

    Rows on different paths have no order. After a restart, those in flight may arrive in another one.
    """
    origins: dict[VertexId, frozenset[VertexId]] = {}
    """The sources upstream of each vertex, by the vertex that they head."""
    mixed: set[VertexId] = set()
    for vertex in plan.vertices:
        inputs = [edge.upstream for edge in plan.inputs_of(vertex.id) if not edge.retries]
        arriving = [origin for upstream in inputs for origin in origins[upstream]]
        origins[vertex.id] = frozenset(arriving or [vertex.id])
        if len(origins[vertex.id]) < len(arriving) or not mixed.isdisjoint(inputs):
            mixed.add(vertex.id)
    nodes = (node for vertex in plan.vertices if vertex.id in mixed for node in vertex.nodes)
    return frozenset(node.operator.name for node in nodes if isinstance(node.operator, SinkOperator))


def _describe(wanted: int, actual: int) -> str:
    came = f"{actual} record{'s' if actual != 1 else ''} came out"
    return f"{came}, {wanted} expected" if actual != wanted else f"{came}, as many as expected, but with other contents"


def _judge_counts(
    what: str, wanted: int | Mapping[str, int] | None, came: Mapping[str, int], lines: Sequence[str]
) -> list[CaseFailure]:
    """Compares counts: `wanted` in total, or by kind or step; None is not compared.

    `lines` describe individual records.
    """
    total = sum(came.values())
    if wanted is None or (wanted == total if isinstance(wanted, int) else _counted(wanted) == _counted(came)):
        return []
    text = [f"{what}: {total}{f' ({_counts_text(came)})' if came else ''}, expected {_counts_text(wanted)}"]
    text += lines[:SKIPPED_SHOWN]
    if len(lines) > SKIPPED_SHOWN:
        text.append(f"and {len(lines) - SKIPPED_SHOWN} more")
    return [CaseFailure("\n".join(text))]


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _counts_text(counts: int | Mapping[str, int]) -> str:
    return str(counts) if isinstance(counts, int) else ", ".join(f"{kind}: {n}" for kind, n in sorted(counts.items()))


class RunOutcome(msgspec.Struct, frozen=True):
    """The results of all chosen cases, in file order."""

    results: tuple[CaseResult, ...]
    left_out: int
    seconds: float

    @property
    def passed(self) -> bool:
        """True if all of them have passed."""
        return all(result.passed for result in self.results)


def choose_cases(cases: Sequence[CaseSettings], pattern: str | None) -> list[CaseSettings]:
    """Chooses the cases with the pattern in their name, ignoring upper and lower case."""
    return [case for case in cases if pattern is None or pattern.casefold() in case.name.casefold()]


def run_cases(
    loaded: LoadedPipeline,
    plan: Plan,
    chosen: Sequence[CaseSettings],
    parallelism: int | None,
    on_result: Callable[[CaseResult], None],
) -> RunOutcome:
    """Runs the chosen cases one after the other."""
    started = time.perf_counter()
    runner = CaseRunner(loaded, plan, parallelism)
    results = []
    for case in chosen:
        results.append(runner.run(case))
        on_result(results[-1])
    return RunOutcome(tuple(results), len(loaded.settings.tests) - len(chosen), time.perf_counter() - started)
