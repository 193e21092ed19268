"""The place of each line of the contract in production code, with a mutant there that loses it."""

from __future__ import annotations

from typing import Final

from tests.contract.mutants_b import MUTANTS as OF_BARRIERS
from tests.contract.mutants_c import MUTANTS as OF_THE_COORDINATOR
from tests.contract.mutants_f import MUTANTS as OF_FAULT_TOLERANCE
from tests.contract.mutants_s import MUTANTS as OF_SERIALIZERS
from tests.contract.mutants_w import MUTANTS as OF_EVENT_TIME
from tests.contract.planting import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *OF_FAULT_TOLERANCE,
    *OF_BARRIERS,
    *OF_THE_COORDINATOR,
    *OF_EVENT_TIME,
    *OF_SERIALIZERS,
)
