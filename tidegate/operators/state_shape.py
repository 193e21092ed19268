"""The shape of an aggregate's state, from its definition alone: known before anything runs, and without Polars."""

from __future__ import annotations

from typing import Final

from tidegate.operators.running import Aggregate
from tidegate.plan.graph import AggregateOperator
from tidegate.state.keygroups import KEY_HASH
from tidegate.state.snapshot import StateField, StateShape

STATE_NAME: Final = "totals"


def derive_state_shape(operator: AggregateOperator, max_parallelism: int) -> StateShape:
    """What its state files look like; `max_parallelism` is the plan's: keys are grouped by it in snapshots."""
    kinds = dict(operator.output)
    aggregates = [Aggregate(name, call) for name, call in operator.aggregates]
    return StateShape(
        keys=tuple(StateField(key, kinds[key]) for key in operator.keys),
        values=tuple(
            StateField(f"{aggregate.name}.{part}", kind, nullable)
            for aggregate in aggregates
            for part, kind, nullable in aggregate.parts
        ),
        key_hash=KEY_HASH,
        max_parallelism=max_parallelism,
    )
