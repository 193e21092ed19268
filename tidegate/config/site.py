"""Site settings, which override those of a pipeline file: `TIDEGATE_SITE` names the file that has them.

A pipeline file defines what happens to records, and is the same everywhere. Brokers, checkpoints and executors differ
between sites; the site file sets them under the same keys and takes precedence (ADR 57).
"""

from __future__ import annotations

from typing import Final

from tidegate.config.document import MappingNode, Node, TextProblem
from tidegate.config.fields.suggest import derive_suggestion

VARIABLE: Final = "TIDEGATE_SITE"
SECTIONS: Final = frozenset(
    {
        *("kafka", "clusters", "spark", "parallelism", "checkpoints", "savepoints", "state", "restart", "runtime"),
        *("http", "logging", "registry"),
    }
)
"""The sections that a site file may have. None of them affects what happens to records."""


def lay_over(tree: MappingNode, site: MappingNode) -> tuple[MappingNode, list[TextProblem]]:
    """Overrides `tree` with the settings of `site`, whose positions name its file; also returns problems of `site`."""
    problems = [
        TextProblem(
            key.mark,
            f"`{key.text[:100]}` is not of a site file ({VARIABLE})",
            derive_suggestion(key.text, SECTIONS, otherwise="what happens to records is in the pipeline file"),
        )
        for key, _ in site.entries
        if key.text not in SECTIONS
    ]
    own = MappingNode(site.mark, [(key, value) for key, value in site.entries if key.text in SECTIONS])
    return _merged(tree, own), problems


def _merged(below: Node, above: Node) -> MappingNode:
    """Merges two mappings; of any other two values, that of the site counts."""
    assert isinstance(below, MappingNode)
    assert isinstance(above, MappingNode)
    over = {key.text: (key, value) for key, value in above.entries}
    entries = []
    for key, value in below.entries:
        found = over.pop(key.text, None)
        if found is None:
            entries.append((key, value))
        elif isinstance(value, MappingNode) and isinstance(found[1], MappingNode):
            entries.append((key, _merged(value, found[1])))
        else:
            entries.append(found)
    return MappingNode(below.mark, [*entries, *over.values()])
