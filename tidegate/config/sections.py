"""The section of the pipeline file at a path, for messages about missing or unknown keys."""

from __future__ import annotations

from typing import Any, get_args

from tidegate.config.cases import section_at
from tidegate.config.fields.base import Settings
from tidegate.config.models import PipelineSettings, SinkSettings, SourceSettings, StepSettings


def _section_of(annotation: Any) -> Any:
    """Returns the section if it is optional, or if a word may be written instead."""
    parts = [_bare(part) for part in get_args(annotation)]
    sections = [part for part in parts if isinstance(part, type) and issubclass(part, Settings)]
    return sections[0] if len(sections) == 1 and {type(None), str}.intersection(parts) else annotation


def _bare(annotation: Any) -> Any:
    """Removes what `Annotated` adds; a name may be annotated twice."""
    while hasattr(annotation, "__metadata__"):
        annotation = get_args(annotation)[0]
    return annotation


def model_at(path: tuple[str | int, ...]) -> type[Settings] | None:
    """Returns the section at a path of the file; None if there is no fixed section."""
    if path[:1] == ("tests",):
        return section_at(path[1:])
    model: Any = PipelineSettings
    steps = list(path)
    while steps:
        word = steps.pop(0)
        if word in ("sources", "sinks", "steps") and model is PipelineSettings:
            model = {"sources": SourceSettings, "sinks": SinkSettings, "steps": StepSettings}[str(word)]
            if not steps:
                return None
            steps.pop(0)
            continue
        names = {(info.alias or name): info.annotation for name, info in model.model_fields.items()}
        model = _section_of(names.get(str(word)))
        if not (isinstance(model, type) and issubclass(model, Settings)):
            return None
    found: type[Settings] = model
    return found
