"""Serializers of state and their snapshots, S01-S23: one mutant per line, at its place in production code."""

from __future__ import annotations

from typing import Final

from tests.contract.planting import Mutant

SNAPSHOT: Final = "state.snapshot"
VERDICT: Final = "state.verdict"
SERIALIZERS: Final = "state.serializers"
REGISTRY: Final = f"{SERIALIZERS}.registry:SerializerRegistry"
COMPOSITE: Final = f"{SERIALIZERS}.composite"

STATES: Final = (
    Mutant("S01", "state.declaration:StateDeclaration.__post_init__", "not STATE_NAME.fullmatch(self.name)", "False"),
    Mutant("S02", f"{VERDICT}:_judge_serializers", "if held != text:", "if False:"),
    Mutant("S03", f"{SNAPSHOT}:assemble_snapshot", "declaration.shape", 'StateShape((), (), "", 0)'),
    Mutant(
        "S06",
        f"{SERIALIZERS}.simple:widen",
        "return Fit.AFTER_RECONFIGURATION, None\n    if old.kind == new.kind",
        "return Fit.AFTER_MIGRATION, float\n    if old.kind == new.kind",
    ),
    Mutant("S07", f"{SNAPSHOT}:read_entries", "value_type(written) | None", "value_type(declaration.shape) | None"),
    Mutant("S08", f"{SNAPSHOT}:read_encoded", "if derive_migration(written, declaration) is not None:", "if False:"),
    Mutant("S09", f"{SNAPSHOT}:read_entries", "yield migration.apply(entries)", "yield entries"),
    Mutant("S10", f"{VERDICT}:refuse_other_shape", "if verdict.fit is Fit.INCOMPATIBLE:", "if False:"),
    Mutant(
        "S11",
        f"{SNAPSHOT}:assemble_snapshot",
        "declaration.shape",
        "StateShape(declaration.shape.keys, declaration.shape.values[:1], declaration.shape.key_hash, 4)",
    ),
    Mutant("S23", f"{VERDICT}:_judge_serializers", "and not name.startswith(TOTAL)", ""),
)

SNAPSHOTS: Final = (
    Mutant("S04", f"{REGISTRY}.read", "version = versions.get(written.kind, 1)", "version = 1"),
    Mutant("S05", f"{REGISTRY}.read", "version = versions.get(written.kind, 1)", "version = snapshot.version"),
    Mutant("S12", f"{SERIALIZERS}.simple:SimpleSnapshot.judge", "new == self.restore()", "True"),
    Mutant(
        "S13", f"{SERIALIZERS}.simple:SimpleSnapshot.restore", "type(self).supplier()", "ValueSerializer(BOOLEAN, bool)"
    ),
    Mutant("S14", "state.compatibility:worst", "max(", "min("),
    Mutant("S15", f"{COMPOSITE}:CompositeSnapshot.restore", "self._nested)", "self._nested[::-1])"),
    Mutant("S16", f"{COMPOSITE}:CompositeSnapshot.__init_subclass__", "if own and", "if False and"),
    Mutant("S17", f"{REGISTRY}.read", "self.read(part, versions)", "self.read(part)"),
    Mutant("S18", f"{COMPOSITE}:CompositeSnapshot.judge", "for text in one.differences)", "for text in ())"),
    Mutant("S19", f"{REGISTRY}.__init__", 'if "." in one.__qualname__', 'if "/" in one.__qualname__'),
    Mutant(
        "S20", f"{REGISTRY}.__init__", "if one in self._by_name.values() or one.kind in self._by_name:", "if False:"
    ),
    Mutant(
        "S21",
        f"{REGISTRY}._find",
        'raise SnapshotUnreadable(f"no serializer is named `{name}`") from None',
        "return BooleanSnapshot",
    ),
    Mutant("S22", f"{REGISTRY}.read", "if not 1 <= version <= snapshot.version:", "if False:"),
)

MUTANTS: Final[tuple[Mutant, ...]] = (*STATES, *SNAPSHOTS)
