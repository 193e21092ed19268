"""Where a dead letter is replayed, and which sinks and states would get its record a second time. Pure.

With a retry topic, the row of a letter returns to the step that failed, and nothing else gets it again. Otherwise the
whole record is written again. To find who has it, this module counts how many rows of one record may reach each
operator: none, one or several. If only one row can have reached the failed operator, nothing after that operator has
the record, and neither has anything after an output of a `route` that the row did not take. If several rows can (after
an `explode`, or on two paths), another one may have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.formats.dead_letters.letter import DeadLetter
from tidegate.ids import MAIN_CLUSTER, OperatorName, SourceTopic
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RetryOperator
from tidegate.operators.spec import DEAD, LATE
from tidegate.plan.graph import Plan

_SEVERAL: Final = 2
_Inputs = tuple[tuple[OperatorName, str], ...]
"""Operators and which of their outputs is read."""


class Holders(msgspec.Struct, frozen=True):
    """Names of sinks, and of steps with state, in order."""

    sinks: tuple[OperatorName, ...] = ()
    steps: tuple[OperatorName, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sinks or self.steps)

    def __str__(self) -> str:
        parts = [(f"sink{'s' * (len(self.sinks) > 1)} ", self.sinks), ("state of ", self.steps)]
        return " and ".join(word + ", ".join(names) for word, names in parts if names)


class Route(msgspec.Struct, frozen=True):
    """Where a dead letter is replayed."""

    retry_topic: str = ""
    """The topic from which the row returns to the step that failed; empty if the whole record is written again."""
    obstacle: str = ""
    """Why it cannot be replayed there."""


class Replays:
    """Answers for the dead letters of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._retry = next(iter(plan.operators(RetryOperator)), None)
        self._sources = [one for one in plan.operators(SourceOperator) if one is not self._retry]
        self._cluster = next((one.cluster for one in plan.operators(DeadLetterOperator)), MAIN_CLUSTER)
        self._operators = {node.operator.name: node.operator for node in plan.nodes}
        self._inputs = _derive_inputs(plan)
        self._stateful = {
            name
            for name, one in self._operators.items()
            if any(state.keyed for state in one.states(plan.max_parallelism))
        }
        self._former = {name: one.was for name, one in plan.directives.items() if one.was}
        self._renamed = {was: name for name, was in self._former.items()}
        self._known: dict[tuple[str, SourceTopic, str], Holders] = {}

    def route(self, letter: DeadLetter) -> Route:
        """Returns where a dead letter is replayed."""
        if self._retry is None or self._failed_in_source(letter):
            return Route()
        return Route(self._retry.topics[0], self._retry.fit(letter).obstacle)

    def _failed_in_source(self, letter: DeadLetter) -> bool:
        names = {name for one in self._sources for name in (one.name, self._former.get(one.name))}
        return letter.step in names or (letter.row is None and letter.row_size is None and letter.port is None)

    def holders(self, step: str, topic: SourceTopic, target: str) -> Holders:
        """Returns what may have a record of `topic` that failed in `step`, and gets it again from `target`, a topic in
        the cluster of the dead letters.

        If the plan does not have the step, everything that reads the topic may have the record.
        """
        asked = (step, topic, target)
        if asked not in self._known:
            had, again = self._find_reached(topic, step), self._find_reached(SourceTopic(self._cluster, target), "")
            both = sorted(had & again)
            sinks = tuple(name for name in both if isinstance(self._operators[name], SinkOperator))
            self._known[asked] = Holders(sinks, tuple(name for name in both if name in self._stateful))
        return self._known[asked]

    def _find_reached(self, topic: SourceTopic, step: str) -> set[OperatorName]:
        """Returns the operators that rows of a record of the topic may reach although it failed in a step."""
        rows = self._count(topic, {}, None)
        failed = OperatorName(step)
        if failed not in rows:
            failed = self._renamed.get(failed, failed)
        if rows.get(failed) != 1:
            return {name for name, count in rows.items() if count}
        taken = self._find_way(failed, rows)
        rows = self._count(topic, taken, failed)
        late = {name for name, output in taken.items() if output == LATE}
        return {name for name, count in rows.items() if count} - late - {failed}

    def _count(
        self, topic: SourceTopic, taken: Mapping[OperatorName, str], failed: OperatorName | None
    ) -> dict[OperatorName, int]:
        """Counts the rows of a record that reach each operator, up to `_SEVERAL`."""
        rows: dict[OperatorName, int] = {}
        for name, operator in self._operators.items():
            if isinstance(operator, SourceOperator):
                rows[name] = int(operator.reads_topic(*topic))
                continue
            found = (
                rows[upstream] * (_SEVERAL if self._operators[upstream].splits_rows() else 1)
                for upstream, output in self._inputs[name]
                if upstream != failed and taken.get(upstream, output) == output
            )
            rows[name] = min(_SEVERAL, sum(found))
        return rows

    def _find_way(self, failed: OperatorName, rows: Mapping[OperatorName, int]) -> dict[OperatorName, str]:
        """Returns the output that the only row took at each operator before the failed one."""
        taken: dict[OperatorName, str] = {}
        name = failed
        while before := [one for one in self._inputs[name] if rows[one[0]]]:
            name, output = before[0]
            taken[name] = output
        return taken


def _derive_inputs(plan: Plan) -> dict[OperatorName, _Inputs]:
    heads = {vertex.id: vertex.nodes[0].operator.name for vertex in plan.vertices}
    inputs: dict[OperatorName, _Inputs] = {node.operator.name: () for node in plan.nodes}
    for vertex in plan.vertices:
        for node in vertex.nodes:
            for output, way in node.outputs.items():
                if output == DEAD:
                    continue
                readers = [vertex.nodes[child].operator.name for child in way.children]
                readers += [heads[plan.edges[edge].downstream] for edge in way.edges if not plan.edges[edge].retries]
                for reader in readers:
                    inputs[reader] = (*inputs[reader], (node.operator.name, output))
    return inputs
