"""Sections with the settings of formats: declared by a format, found by its name, and refused for another one."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any

import pytest
from pydantic import Field, create_model

from tidegate.config import models
from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import choice
from tidegate.config.models import decide_section_problems, derive_format_sections, read_section
from tidegate.formats.contract import read_settings
from tidegate.formats.kinds.raw import RawFormat
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions


class LinesSettings(Settings):
    """Settings of a format that the product does not have."""

    end: Annotated[str, choice("lf", "crlf"), Field(description="The end of a line.")] = "lf"
    skip: Annotated[str, choice("none", "empty"), Field(description="Lines that are skipped.")] = "none"


class LinesFormat(RawFormat):
    """A format with settings, for sources only."""

    name = "my-lines"
    source_settings = LinesSettings


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(models, "FORMATS", {"json": FORMATS["json"], "my-lines": LinesFormat()})
    fields = derive_format_sections(attrgetter("source_settings"))
    assert list(fields) == ["my_lines_settings"]
    assert derive_format_sections(attrgetter("sink_settings")) == {}
    return create_model("Source", __base__=Settings, format=(str, "json"), **fields)


def test_a_section_has_the_name_of_its_format(source: Any) -> None:
    end = source.model_validate({"format": "my-lines", "my-lines": {"end": "crlf"}})
    assert list(decide_section_problems((), end)) == []
    options = FormatOptions(settings=read_section(end))
    assert options.settings == {"end": "crlf"}
    assert read_settings(LinesSettings, options) == LinesSettings(end="crlf", skip="none")
    assert options.describes() == ['format settings: end "crlf"']
    assert options.describes() == ['format settings: end "crlf"']


def test_a_format_without_its_section_has_the_defaults(source: Any) -> None:
    for given in ({"format": "my-lines"}, {"format": "my-lines", "my-lines": {}}, {}):
        end = source.model_validate(given)
        assert list(decide_section_problems((), end)) == []
        assert read_section(end) == {}
    assert FormatOptions().describes() == []
    assert read_settings(LinesSettings, FormatOptions()) == LinesSettings()


def test_a_section_of_another_format_is_refused(source: Any) -> None:
    (problem,) = decide_section_problems(("sources", "a"), source.model_validate({"my-lines": {"end": "crlf"}}))
    assert problem.path == ("sources", "a", "my-lines")
    assert problem.message == "these are settings of the format my-lines, and the format is json"
    assert problem.remedy == "write `format: my-lines`, or remove them"
