"""Mistakes that whoever adds a step with keys can make, each as a change of the text of `kinds/sample`."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Final, NamedTuple

Changes = tuple[tuple[str, str], ...]


class Mistake(NamedTuple):
    """`changes`: old and new text, in whichever of the two files has it. `said` is part of what is reported."""

    word: str
    said: str
    changes: Changes
    at_registration: bool = False


_FIELD: Final = "    every: int\n"
_KIND: Final = '    """A step with `key` and `sample`."""\n'
_VALUES: Final = '        return (StateField("seen", BIGINT, nullable=False),)\n'
_PASS: Final = "        self.pass_on(batch, passing, out)\n"
_ENDLESS_POLL: Final = """
def poll(self, rows_max, out):
    return True
"""
_COUNT: Final = "            seen[key] += 1\n"
_PUT: Final = "        self.state.put_many(seen, [(count,) for count in seen.values()])\n"


def _block(text: str, depth: int = 1) -> str:
    return indent(dedent(text).lstrip("\n"), depth * "    ")


def _operator_with(text: str) -> Changes:
    return ((_FIELD, f"{_FIELD}\n{_block(text)}"),)


def _kind_that(adds: str) -> Changes:
    build = f"""
    def build(self, step, context):
        columns = tuple(context.columns.items())
        made = self.operator(context.name, step.key, columns, context.policy, every=step.sample.every)
        context.declare_columns(context.columns)
        {adds}
    """
    return ((_KIND, f"{_KIND}\n{_block(build)}"),)


def _instead_of(old: str, text: str) -> Changes:
    return ((old, _block(text, depth=2)),)


AT_REGISTRATION: Final = (
    ("no_tag", "has no tag", (', tag="sample"', "")),
    ("tag_of_another", "has the tag `last` of LastOperator", ('tag="sample"', 'tag="last"')),
    ("key_of_another", "has the key `keep` of", ('    key = "sample"', '    key = "keep"')),
    ("key_unknown", "has the key `samples`, which is no key of", ('    key = "sample"', '    key = "samples"')),
    ("key_required", "requires `key_required` of every step", ('.")] = None', '.")]')),
    ("key_of_another_type", "has the key `key` with another type", ("key: GroupKeys = None", "key: bool = False")),
    ("no_kind", "has no `KIND`", ("KIND = SampleKind()", "")),
    (
        "class_as_kind",
        "`KIND` is no StepKind: write `KIND = SampleKind()`",
        ("KIND = SampleKind()", "KIND = SampleKind"),
    ),
    ("no_key", "has no `key`", ('    key = "sample"\n', "")),
    ("no_operator", "has no `operator`", ("    operator = SampleOperator\n", "")),
    ("no_fields", "has no `fields`", ("    def fields(", "    def field(")),
)
IN_A_PLAN: Final = (
    Mistake("no_keys", "the keyed state `state` and is added without keys", _kind_that("context.add(made)")),
    Mistake(
        "wrong_field",
        "fields() does not fit SampleOperator: Unexpected keyword argument 'evry'",
        (('{"every": step', '{"evry": step'),),
    ),
    Mistake("wrong_example", ".evry: unknown key; did you mean `every`?", (("{every: 3}", "{evry: 3}"),)),
    Mistake(
        "other_keys",
        "has the state `state` by customer, and its rows are exchanged by id",
        _kind_that('context.add(made, ("id",))'),
    ),
    Mistake(
        "no_output",
        "declares `amount`, which the operator does not emit",
        (
            *_operator_with('def output_columns(self, output=""): return ()\n'),
            *_kind_that("context.add(made, step.key)"),
        ),
    ),
    Mistake(
        "keys_unread",
        "reads() lacks `customer`, by which its rows are exchanged",
        _operator_with('def reads(self, port=0): return {"id"}\n'),
    ),
    Mistake(
        "unknown_read",
        "reads() has `price`, which does not arrive",
        _operator_with('def reads(self, port=0): return {*super().reads(port), "price"}\n'),
    ),
    Mistake(
        "no_means",
        "has keyed state and no fingerprint",
        _operator_with("def fingerprint(self, lineages, port=0): return None\n"),
    ),
    Mistake(
        "means_without_keys",
        "fingerprint() is the same whatever the key `customer` is made of",
        _operator_with("""
            def fingerprint(self, lineages, port=0):
                return {one.origin: {"all": str(sorted(one.conditions))} for one in lineages}
            """),
    ),
    Mistake(
        "means_without_conditions",
        "fingerprint() is the same whichever records arrive",
        _operator_with("""
            def fingerprint(self, lineages, port=0):
                return {one.origin: {"all": one.columns["customer"]} for one in lineages}
            """),
    ),
    Mistake(
        "passes_no_columns",
        "lineage() has no digest of the column",
        _operator_with("""
            def lineage(self, lineages, output=""):
                return tuple(type(one)(one.origin, {}) for one in lineages)
            """),
    ),
    Mistake(
        "no_sizes",
        "output_size() has no size of the column",
        _operator_with("""
            def output_size(self, columns, port=0):
                return {}, super().output_size(columns, port)[1]
            """),
    ),
    Mistake(
        "no_state_values",
        "has the state `state` without values",
        _instead_of(_VALUES, "return ()\n"),
    ),
    Mistake(
        "state_by_readers",
        "states() depends on what is read of it",
        _instead_of(_VALUES, "return tuple(StateField(name, kind) for name, kind in self.pruned_columns())\n"),
    ),
)
WHEN_IT_RUNS: Final = (
    Mistake(
        "no_passes",
        "lineage() changes nothing",
        _operator_with('def lineage(self, lineages, output=""): return lineages\n'),
    ),
    Mistake(
        "no_provenance",
        "preserves_record() is False",
        _operator_with('def preserves_record(self, output=""): return False\n'),
    ),
    Mistake(
        "wrong_rest",
        "drops rows, and REST is FOLDED",
        _operator_with("""
            from tidegate.operators.spec import Rest
            REST = Rest.FOLDED
            """),
    ),
    Mistake(
        "engine_dropped",
        "drops `__tidegate_offset` of rows that keep their record",
        _instead_of(_PASS, "out.emit(batch[passing].select(name for name, _ in self.operator.pruned_columns()))\n"),
    ),
    Mistake(
        "state_in_memory",
        "it knows more than its states hold",
        (
            ("        passing = []\n", "        seen |= getattr(self, 'known', {})\n        passing = []\n"),
            (_PUT, "        self.known = seen\n"),
        ),
    ),
    Mistake(
        "watermark_swallowed",
        "does not pass watermarks on",
        ((_PASS, f"{_PASS}\n    def on_watermark(self, watermark_ms, out): pass\n"),),
    ),
    Mistake(
        "time_not_required",
        "event time only if requires() has it",
        ((_PASS, f"        batch['__tidegate_time']\n{_PASS}"),),
    ),
    Mistake(
        "column_not_read",
        "it gets the columns of reads() when one is needed",
        ((_PASS, f"        batch['amount']\n{_PASS}"),),
    ),
    Mistake(
        "column_not_declared",
        "and output_columns() has",
        _instead_of(_PASS, "out.emit(batch[passing].with_columns(batch['customer'][passing].alias('again')))\n"),
    ),
    Mistake(
        "state_by_a_column",
        "its state depends on the column `amount`, and fingerprint() does not",
        ((_COUNT, "            seen[key] += int('amount' not in batch or batch['amount'][place] > 2)\n"),),
    ),
    Mistake(
        "larger_than_said",
        "emits more bytes than output_size() allows",
        (
            *_operator_with("""
                def added_columns(self):
                    from tidegate.datatypes import STRING
                    return (("note", STRING),)
                """),
            *_instead_of(_PASS, "self.pass_on(batch.with_columns(pl.lit('x' * 9999).alias('note')), passing, out)\n"),
        ),
    ),
    Mistake(
        "no_process",
        "open() raises TypeError: Can't instantiate abstract class SampleRuntime",
        (("    def process(", "    def processes("),),
    ),
    Mistake(
        "other_runtime",
        "has no attribute 'SampleRuntime'",
        (("class SampleRuntime(", "class SamplingRuntime("),),
    ),
    Mistake(
        "open_fails",
        "open() raises RuntimeError: no model",
        _operator_with("def open(self, slot): raise RuntimeError('no model')\n"),
    ),
    Mistake("nothing_open", "open() returns a NoneType", _operator_with("def open(self, slot): pass\n")),
    Mistake(
        "constant_key",
        "keeps a key in the state `state` whose rows arrive at another subtask",
        _instead_of(_PUT, "self.state.put_many(['all'], [(len(seen),)])\n"),
    ),
    Mistake("state_unused", "keeps nothing in its keyed state `state`", ((_PUT, ""),)),
    Mistake(
        "state_of_another_type",
        "a value of the state `state` does not fit its fields: Expected `str",
        (("BIGINT, nullable", "__import__('tidegate').datatypes.STRING, nullable"),),
    ),
    Mistake(
        "column_lost",
        "pass_on() gets the column `again`, which output_columns() does not have",
        _instead_of(_PASS, "self.pass_on(batch.with_columns(batch['customer'].alias('again')), passing, out)\n"),
    ),
    Mistake("endless_poll", "poll() returns True again and again", ((_PASS, f"{_PASS}\n{_block(_ENDLESS_POLL)}"),)),
    Mistake("emitted_twice", "emits a record twice", ((_PASS, _PASS + _PASS),)),
)
MISTAKES: Final = (
    *(Mistake(word, said, (change,), at_registration=True) for word, said, change in AT_REGISTRATION),
    *IN_A_PLAN,
    *WHEN_IT_RUNS,
)

ADDS_A_COLUMN_THAT_ARRIVES: Final = Mistake(
    "adds_amount",
    "there is already a column `amount`",
    _operator_with("""
        def added_columns(self):
            return (("amount", BIGINT),)
        """),
)
"""A problem of the pipeline file, whose author may rename the column."""
