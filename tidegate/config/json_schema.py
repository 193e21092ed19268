"""JSON Schema of the pipeline file for editors, generated from the models."""

from __future__ import annotations

import warnings
from typing import Any

from pydantic.json_schema import PydanticJsonSchemaWarning

from tidegate.config.models import PipelineSettings
from tidegate.config.properties import OWNED_KAFKA, read_kafka_properties
from tidegate.kafka.unusable_properties import UNUSABLE_KAFKA

_CONSTRAINTS = ("type", "enum", "pattern", "minimum", "maximum", "maxLength")
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""A text that is not the final value: `${NAME}`, `${NAME:default}` or `${file:...}`."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def derive_json_schema() -> dict[str, Any]:
    """Derives the schema, with the keys of the file.

    It describes the form; `tidegate validate` also checks the meaning.
    """
    with warnings.catch_warnings():
        # Defaults of Tidegate's own types (`20 in 30m`) have no JSON form; the reference lists them.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        schema = PipelineSettings.model_json_schema(by_alias=True, mode="validation")
    schema["$schema"] = DIALECT
    schema["title"] = "Tidegate pipeline"
    names = sorted(
        name
        for name, entry in read_kafka_properties().items()
        if name not in OWNED_KAFKA
        and name not in UNUSABLE_KAFKA
        and entry.alias_of not in OWNED_KAFKA
        and entry.type != "see dedicated API"
    )
    for part in (schema, *schema["$defs"].values()):
        if "kafka" in part.get("properties", {}):
            part["properties"]["kafka"]["propertyNames"] = {"enum": names}
        for other in part.get("properties", {}).get("clusters", {}).get("patternProperties", {}).values():
            other["propertyNames"] = {"enum": names}
        for one in part.get("properties", {}).values():
            _without_defaults_in_ms(one)
            _with_variables(one)
    _without_exclusion(schema)
    return schema


def _without_exclusion(part: Any) -> None:
    """Replaces `oneOf` by `anyOf`: `{file: order.avsc}` is a schema's location, but could also be a column."""
    if isinstance(part, dict):
        if "oneOf" in part:
            part["anyOf"] = part.pop("oneOf")
        for inner in part.values():
            _without_exclusion(inner)
    elif isinstance(part, list):
        for inner in part:
            _without_exclusion(inner)


def _without_defaults_in_ms(schema: dict[str, Any]) -> None:
    """Removes defaults of durations: they are in milliseconds, which the file does not accept."""
    if schema.get("type") == "string" and isinstance(schema.get("default"), int):
        del schema["default"]


def _with_variables(schema: dict[str, Any]) -> None:
    """Allows a variable for any number, choice or name, because an editor sees the file before interpolation."""
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    inner += [schema.get("items"), schema.get("additionalProperties")]
    inner += [*schema.get("properties", {}).values(), *schema.get("patternProperties", {}).values()]
    for part in inner:
        if isinstance(part, dict):
            _with_variables(part)
    if schema.get("type") in ("integer", "boolean") or "enum" in schema or "pattern" in schema:
        plain = {key: schema.pop(key) for key in _CONSTRAINTS if key in schema}
        schema["anyOf"] = [plain, _VARIABLE]
