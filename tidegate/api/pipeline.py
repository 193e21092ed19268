"""Loads a pipeline, and tests and previews it in the process of a notebook or a test, without Kafka and Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import msgspec

from tidegate.checks.pipeline_file import read_checked
from tidegate.checks.registry import copies_of
from tidegate.config.cases import NOW, CaseSettings, GivenSettings, moment_ms
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.load import LoadedPipeline, parse_pipeline, read_pipeline
from tidegate.errors import TidegateError
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.gates import derive_turns
from tidegate.plan.graph import Plan

if TYPE_CHECKING:
    from tidegate.api.rows import Frames, Rows
    from tidegate.testing.cases import CaseRunner
    from tidegate.testing.feed import FeedEvent
    from tidegate.testing.playing import PlayedInput

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NO_FILE: Final = "<pipeline>"


class RestartChangesResult(TidegateError):
    """The result with a restart in the middle differs from that without one."""

    code = "restart-changes-result"
    exit_code = 1
    retriable = False


def load(source: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None) -> Pipeline:
    """Loads a pipeline file, and checks it as `tidegate validate` does.

    `environ` has the variables for `${NAME}`; by default those of the process. Raises ConfigErrors with all problems of
    the file, each with its place and remedy.
    """
    path, variables = Path(source), os.environ if environ is None else environ
    return _load(lambda: read_pipeline(path, variables))


def loads(
    source: str | Mapping[str, object],
    *,
    directory: str | os.PathLike[str] = ".",
    environ: Mapping[str, str] | None = None,
) -> Pipeline:
    """Loads a pipeline from YAML text, or from a mapping with the same keys.

    `directory` is where the files and modules that it names are. Otherwise like `load`.
    """
    text = source if isinstance(source, str) else _render(source)
    file, variables = str(Path(directory) / _NO_FILE), os.environ if environ is None else environ
    return _load(lambda: parse_pipeline(text, file, variables))


def _load(read: Callable[[], LoadedPipeline]) -> Pipeline:
    loaded, checked = read_checked(read)
    if checked.plan is None:
        raise ConfigErrors(checked.problems)
    return Pipeline(loaded, checked.plan, checked.warnings)


def _render(source: Mapping[str, object]) -> str:
    """Returns a mapping as JSON, which is YAML."""

    def convert(value: object) -> str:
        if isinstance(value, dt.datetime | dt.date):
            return value.isoformat()
        if isinstance(value, dt.timedelta):
            return f"{value // dt.timedelta(milliseconds=1)}ms"
        if isinstance(value, Path):
            return str(value)
        remedy = "; a function or class is named as `module:name`" if callable(value) else ""
        raise TypeError(f"a {type(value).__name__} cannot be written in a pipeline file{remedy}")

    return json.dumps(source, ensure_ascii=False, indent=1, default=convert)


class Case:
    """A case in `tests:` of the file."""

    def __init__(self, runner: Callable[[], CaseRunner], loaded: LoadedPipeline, settings: CaseSettings) -> None:
        self._runner = runner
        self._loaded = loaded
        self._settings = settings
        self.name = settings.name
        self.line: int = loaded.position(("tests", loaded.settings.tests.index(settings)))[0]
        """Its line in the file, from 1."""

    def __repr__(self) -> str:
        return f"Case({self.name!r})"

    def run(self) -> CaseReport:
        """Runs the case as `tidegate test` does, once as it is and once with a restart in the middle."""
        from tidegate.testing.render import render_failures

        result = self._runner().run(self._settings)
        return CaseReport(self.name, result.passed, render_failures(self._loaded, result), result.seconds)


class CaseReport(msgspec.Struct, frozen=True):
    """The result of a case. `text` tells why it has failed, as `tidegate test` prints it; empty if it has passed."""

    name: str
    passed: bool
    text: str
    seconds: float

    def __str__(self) -> str:
        return f"{'passed' if self.passed else 'failed'}  {self.name}" + (f"\n{self.text}" if self.text else "")


class Pipeline:
    """A valid pipeline. `load` and `loads` make it."""

    def __init__(self, loaded: LoadedPipeline, plan: Plan, warnings: Sequence[Problem]) -> None:
        self._loaded = loaded
        self._plan = plan
        self._runner: CaseRunner | None = None
        self.name: str = loaded.settings.name
        self.warnings: tuple[Problem, ...] = tuple(warnings)
        """What `validate` warns about; `str` of each is a line with its place and remedy."""
        self.sources: tuple[str, ...] = tuple(loaded.settings.sources)
        self.steps: tuple[str, ...] = tuple(step.name for step in loaded.settings.steps)
        self.outputs: tuple[str, ...] = tuple(loaded.settings.sinks)
        """The names of the sinks."""
        self.cases: tuple[Case, ...] = tuple(Case(self._case_runner, loaded, one) for one in loaded.settings.tests)
        """The cases in `tests:` of the file."""

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, sources={self.sources}, steps={self.steps}, outputs={self.outputs})"

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><td>{kind}</td><td>{escape(name)}</td><td>{escape(_columns_text(self.columns(name)))}</td></tr>"
            for kind, names in (("source", self.sources), ("sink", self.outputs))
            for name in names
        ]
        steps = f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"
        warnings = "".join(f"<div>{escape(str(one))}</div>" for one in self.warnings)
        return f"<b>{escape(self.name)}</b> ({steps})<table>{''.join(rows)}</table>{warnings}"

    # -- what it is ----------------------------------------------------------------------------------------------------

    def columns(self, name: str) -> dict[str, str]:
        """Returns column -> Spark type of a source, a step, an output of a step (`visits.ended`) or a sink."""
        from tidegate.api.rows import columns_of_sink

        plan = self._plan
        sink = next((one for one in plan.operators(SinkOperator) if one.name == name), None)
        if sink is None:
            _, plan, sinks = self._tap([name])
            sink = sinks[name]
        return {column: str(kind) for column, kind in columns_of_sink(plan, sink).items()}

    @overload
    def explain(self, *, format: Literal["text"] = "text") -> str: ...
    @overload
    def explain(self, *, format: Literal["json"]) -> dict[str, Any]: ...
    def explain(self, *, format: Literal["text", "json"] = "text") -> str | dict[str, Any]:  # noqa: A002  # the option of the command
        """Returns what `tidegate explain` prints: operators, exchanges, state and settings. `json`: as plain values."""
        found = derive_explanation(self._loaded, self._plan)
        if format == "text":
            return self._loaded.secrets(render_explanation(found))
        plain: dict[str, Any] = json.loads(self._loaded.secrets(json.dumps(found, ensure_ascii=False)))
        return plain

    # -- running it ----------------------------------------------------------------------------------------------------

    def run_cases(self) -> list[CaseReport]:
        """Runs all cases in `tests:` of the file."""
        return [case.run() for case in self.cases]

    def test(
        self,
        rows: Mapping[str, Rows],
        *,
        records: bool = False,
        at: str | Sequence[str] = (),
        now: dt.datetime | None = None,
        watermark: dt.datetime | Literal["end"] | None = "end",
        parallelism: int = 1,
        batch: int = 1,
        restart: bool = True,
    ) -> Frames:
        """Runs the pipeline over rows, and returns a frame for each sink.

        :param rows: for each source a DataFrame, or dicts, with the columns of the source.
        :param records: the rows are records as in `given` of a case: `value`, `key`, `timestamp`, `headers`, `text`,
            `partition`, `topic`, or `advance` or `watermark` alone.
        :param at: sources, steps or outputs of steps whose rows are returned instead of those of the sinks.
        :param now: what the clock shows at the beginning; 2026-01-01 by default, as in a case.
        :param watermark: how far event time advances after the last row. `"end"`: the input ends, so all windows close
            and all timers in event time fire. A time: the watermark of all sources moves there. None: no further than
            the rows say.
        :param parallelism: the number of slots.
        :param batch: up to how many rows arrive together. With 1, each is processed before the next one arrives, as in
            a case; 1000 take less time.
        :param restart: runs a second time with a restart from a checkpoint in the middle, whose result must be the
            same.

        Bad records are handled as the file says: `fail` raises PipelineStopped; others are in `bad_records` and
        `skipped` of the result, and dead letters in its frame `dead_letters`. Raises RestartChangesResult if the two
        results differ, and a TidegateError for whatever stops the pipeline or rows that cannot be given to it.
        """
        from tidegate.testing.preview import bound_sources

        if batch < 1 or parallelism < 1:
            raise ValueError("`batch` and `parallelism` are whole numbers from 1 on")
        loaded, plan, places = self._tap(_names(at))
        given = {name: self._elements(name, each, records=records) for name, each in rows.items()}
        events = self._derive_events(given)
        begins_ms = moment_ms(NOW) if now is None else _moment_ms(now)
        if isinstance(watermark, dt.datetime):
            events = [*events, *_advance(events, loaded.settings.sources, _moment_ms(watermark))]
        plan = msgspec.structs.replace(plan, parallelism=min(parallelism, plan.max_parallelism))
        if watermark == "end":
            plan = bound_sources(plan)
        return _play(plan, _given(loaded, events, begins_ms, batch), places, loaded, restart=restart)

    def preview(
        self,
        inputs: Mapping[str, str | os.PathLike[str] | Rows],
        *,
        records: bool = False,
        at: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> Frames:
        """Runs the pipeline over files or rows as `tidegate preview` does, and returns a frame for each sink.

        `inputs` has for each source rows as in `test`, or the path of a file: lines of JSON.
        `records` and `at` are as in `test`; `limit` is the number of rows of each frame. The input ends with the last
        row.
        """
        from tidegate.testing.preview import CHUNK, bound_sources

        loaded, plan, places = self._tap(_names(at))
        events: list[FeedEvent] = []
        for name, each in inputs.items():
            if isinstance(each, str | os.PathLike):
                events += self._read_file(name, Path(each), records=records)
            else:
                events += self._derive_events({name: self._elements(name, each, records=records)})
        given = _given(loaded, events, moment_ms(NOW), CHUNK)
        result = _play(bound_sources(plan), given, places, loaded, restart=False)
        result.update({place: frame.head(limit) for place, frame in result.items() if limit is not None})
        return result

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _case_runner(self) -> CaseRunner:
        """Returns the runner of the file's cases, the same for all of them."""
        from tidegate.testing.cases import CaseRunner

        if self._runner is None:
            self._runner = CaseRunner(self._loaded, self._plan)
        return self._runner

    def _tap(self, names: Sequence[str]) -> tuple[LoadedPipeline, Plan, dict[str, SinkOperator]]:
        """Returns the pipeline with a sink after each of these places, and these sinks; without names its own sinks."""
        from tidegate.testing.preview import StepUnknown, tap_steps, tappable, tapping_sink

        loaded, plan = self._loaded, self._plan
        known = tappable(loaded)
        for name in names:
            if name not in known:
                raise StepUnknown(f"{loaded.file} has no source, step or output {name!r}; it has: {', '.join(known)}")
        if names:
            loaded, plan = tap_steps(loaded, names)
        sinks = {str(one.name): one for one in plan.operators(SinkOperator)}
        if names:
            return loaded, plan, {name: sinks[tapping_sink(at)] for at, name in enumerate(names)}
        wanted = [*loaded.settings.sinks, DEAD_LETTERS]
        return loaded, plan, {name: sinks[name] for name in wanted if name in sinks}

    def _source(self, name: str) -> SourceOperator:
        from tidegate.testing.preview import StepUnknown

        given = self._loaded.settings.sources
        known = {str(one.name): one for one in self._plan.operators(SourceOperator) if one.name in given}
        if name not in known:
            raise StepUnknown(f"{self._loaded.file} reads no source {name!r}; it has: {', '.join(known)}")
        return known[name]

    def _elements(self, name: str, rows: Rows, *, records: bool) -> list[GivenSettings]:
        from tidegate.api.rows import derive_elements

        return derive_elements(rows, self._source(name), self._loaded.settings.sources[name], records=records)

    def _derive_events(self, given: Mapping[str, Sequence[GivenSettings]]) -> list[FeedEvent]:
        from tidegate.testing.feed import derive_events, plain_key_options, plain_options

        plan, sources = self._plan, self._loaded.settings.sources
        return derive_events(given, sources, plain_options(plan), plain_key_options(plan), derive_turns(plan))

    def _read_file(self, name: str, path: Path, *, records: bool) -> list[FeedEvent]:
        from tidegate.testing.feed import FeedEvent
        from tidegate.testing.preview import read_file

        self._source(name)
        with path.open("rb") as stream:
            return [FeedEvent(0, record) for record in read_file(self._loaded, self._plan, name, stream, whole=records)]


def _names(at: str | Sequence[str]) -> list[str]:
    return [at] if isinstance(at, str) else list(dict.fromkeys(at))


def _moment_ms(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(milliseconds=1)


def _advance(events: Sequence[FeedEvent], sources: Mapping[str, object], watermark_ms: int) -> list[FeedEvent]:
    """Returns the events that move the watermarks of all sources after the last row."""
    from tidegate.testing.feed import FeedEvent

    after_ms = max((one.after_ms for one in events), default=0)
    return [FeedEvent(after_ms, None, name, watermark_ms) for name in sources]


def _columns_text(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _given(
    loaded: LoadedPipeline,
    events: Sequence[FeedEvent],
    begins_ms: int,
    batch: int,
) -> PlayedInput:
    """Returns the input of a run."""
    from tidegate.testing.feed import derive_ends
    from tidegate.testing.playing import PlayedInput

    ends = derive_ends((one.record for one in events if one.record is not None), loaded.settings.sources.values())
    registry = loaded.settings.registry
    copies = None if registry is None else copies_of(registry).of_id
    return PlayedInput(events, ends, begins_ms, batch, copies)


def _play(
    plan: Plan, given: PlayedInput, places: Mapping[str, SinkOperator], loaded: LoadedPipeline, *, restart: bool
) -> Frames:
    """Plays an input, and returns the rows that the sinks of these places have written."""
    from tidegate.api.rows import Frames, gather_rows
    from tidegate.testing.cases import compare_restarted
    from tidegate.testing.playing import Run, open_code
    from tidegate.testing.render import render_failure

    skipped: list[str] = []
    run = Run(plan, given, skipped.append, open_code(loaded))
    played = run.play(rows=True)
    if restart:
        compared = {name: sink for name, sink in places.items() if name != DEAD_LETTERS}
        unordered = compared.keys() if plan.parallelism > 1 else ()
        failures = compare_restarted(compared, played.written, run, unordered)
        if failures:
            text = "\n".join(line for failure in failures for line in render_failure(failure))
            raise RestartChangesResult(loaded.secrets(text))
    frames = {name: gather_rows(plan, sink, played.rows.get(sink.name, ())) for name, sink in places.items()}
    return Frames(frames, played.bad, [loaded.secrets(line) for line in skipped], played.late, played.notes)
