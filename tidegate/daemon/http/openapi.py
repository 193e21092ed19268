"""The description of the API in OpenAPI 3.1, derived from its resources and commands. Pure.

Types and their descriptions are those of the structs, with the docstrings of their fields. Served at
`/api/v1/openapi.json`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from tidegate.daemon.http.commands import API, COMMANDS, JSON, REQUEST_BYTES_MAX, Command, ControlRequest, Refusal
from tidegate.daemon.http.resources import Resource, ResourceQuery, in_thread

OPENAPI: Final = "3.1.0"
NAME: Final = "openapi.json"
KEPT_S: Final = 60.0
_REF: Final = "#/components/schemas/{name}"
_ERRORS: Final = {
    400: "The request is wrong: the message names the place and the remedy.",
    401: "No token or certificate with the role that is needed.",
    403: "The origin of the request is not allowed: another machine without TLS, or the page of another site.",
    404: "Not found.",
    409: "The daemon runs another pipeline.",
    413: f"The body has more than {REQUEST_BYTES_MAX} bytes.",
    415: f"The body is not `{JSON}`.",
    421: "The `Host` header does not name this server.",
    500: "The command failed, or an internal error.",
    503: "Not possible now; try again.",
}
_READING: Final = (400, 401, 404, 421, 500, 503)
_COMMANDING: Final = (400, 401, 403, 409, 413, 415, 421, 500, 503)
_ROLES: Final[list[dict[str, list[str]]]] = [{"token": []}, {"certificate": []}]
_PYTHON_NAMES: Final = {"None": "null", "True": "true", "False": "false"}
_PYTHON: Final = re.compile(r"\b(None|True|False)\b")
_BEARER: Final = "The daemon's token; for reading also that of `http.read_token_file`."
_DESCRIPTION: Final = (
    "The state of a pipeline as its Tidegate daemon reports it, and the commands that the daemon accepts. Names end "
    "with their unit; times are Unix milliseconds. Reading needs a token or a certificate only if "
    "`http.read_token_file` or `http.tls.client_ca` is set; commands, and resources that show records, need the "
    "role `operate`."
)


def make_openapi_resource(resources: Sequence[Resource[Any]], version: str) -> Resource[ResourceQuery]:
    """Makes the resource of the description; `version` is Tidegate's."""
    read = in_thread(lambda: make_openapi(resources, version))
    summary = "This API in OpenAPI 3.1."
    return Resource(name=NAME, summary=summary, answer=dict[str, Any], read=read, kept_s=KEPT_S)


def make_openapi(resources: Iterable[Resource[Any]], version: str) -> dict[str, Any]:
    """Describes the resources, and all commands."""
    listed = sorted(resources, key=lambda one: one.name)
    answered = [*(one.answer for one in listed), *(one.answer for one in COMMANDS)]
    types = [Refusal, ControlRequest, *answered]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    answers = schemas[2:]
    paths: dict[str, dict[str, Any]] = {}
    for one, schema in zip(listed, answers, strict=False):
        paths.setdefault(one.path, {})["get"] = _describe_resource(one, schema)
    for command, schema in zip(COMMANDS, answers[len(listed) :], strict=True):
        paths.setdefault(API + command.path, {})["post"] = _describe_command(command, schema, schemas[1])
    for struct in _find_structs(types):
        _add_descriptions(components, struct)
    used = {status for methods in paths.values() for one in methods.values() for status in one["responses"]}
    document = {
        "openapi": OPENAPI,
        "info": {
            "title": "Tidegate",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "reading", "description": "Resources of the pipeline."},
            {"name": "commands", "description": "Requests that change something."},
        ],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {
                f"Error{status}": {"description": text, "content": {JSON: {"schema": schemas[0]}}}
                for status, text in _ERRORS.items()
                if str(status) in used
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": _BEARER},
                "certificate": {"type": "mutualTLS", "description": "A certificate that `http.tls` gives a role."},
            },
        },
    }
    plain = msgspec.json.decode(msgspec.json.encode(document), type=dict[str, Any])  # defaults are tuples
    _simplify(plain)
    return plain


def _simplify(value: Any) -> None:
    """Removes `items: false` of tuples: their `maxItems` says the same, and generators of clients do not know it."""
    if isinstance(value, dict) and value.get("items") is False:
        del value["items"]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _simplify(inner)


def _describe_resource(resource: Resource[Any], schema: dict[str, Any]) -> dict[str, Any]:
    errors = {*_READING, *([403] if resource.operates else ())}
    responses = {
        "200": {"description": resource.summary, "headers": _ETAG, "content": {JSON: {"schema": schema}}},
        "304": {"description": "The answer is the one that `If-None-Match` names."},
    }
    name = "".join(part.capitalize() for part in resource.name.split("-"))
    return {
        "operationId": f"get{name}",
        "tags": ["reading"],
        "summary": resource.summary,
        "parameters": [*_describe_parameters(resource.query), _IF_NONE_MATCH],
        "responses": responses | _refer(sorted(errors)),
        "security": _ROLES if resource.operates is True else [{}, *_ROLES],
    }


_ETAG: Final = {"ETag": {"description": "Names this answer.", "schema": {"type": "string"}}}
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The `ETag` of the answer that the client has.",
    "schema": {"type": "string"},
}


def _describe_parameters(query: type[ResourceQuery]) -> list[dict[str, Any]]:
    (_, components) = msgspec.json.schema_components([query], ref_template=_REF)
    _add_descriptions(components, query)
    schema = components[query.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": one.pop("description", ""),
            "schema": one,
        }
        for name, one in schema.get("properties", {}).items()
    ]


def _describe_command(command: Command, schema: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    done = {"200": {"description": "Done.", "content": {JSON: {"schema": schema}}}}
    return {
        "operationId": command.operation,
        "tags": ["commands"],
        "summary": command.summary,
        "requestBody": {"required": True, "content": {JSON: {"schema": body}}},
        "responses": done | _refer(_COMMANDING),
        "security": _ROLES,
    }


def _refer(errors: Iterable[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in errors}


def _find_structs(types: Iterable[Any]) -> list[type[msgspec.Struct]]:
    """Returns the structs that types consist of."""
    found: dict[type[msgspec.Struct], None] = {}
    open_types = list(msgspec.inspect.multi_type_info(types))
    while open_types:
        one = open_types.pop()
        if isinstance(one, msgspec.inspect.StructType):
            if one.cls in found:
                continue
            found[one.cls] = None
            open_types += [field.type for field in one.fields]
        for inner in ("item_type", "key_type", "value_type"):
            open_types += [getattr(one, inner)] if hasattr(one, inner) else []
        for several in ("types", "item_types"):
            open_types += getattr(one, several, ())
    return list(found)


def _add_descriptions(components: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Adds the docstrings of a struct's fields to its schema."""
    properties = components[struct.__name__].get("properties", {})
    docs = read_field_docs(struct)
    for field in msgspec.structs.fields(struct):
        if field.name in docs:
            properties[field.encode_name] = {**properties[field.encode_name], "description": docs[field.name]}


@cache
def read_field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Returns the docstrings of a struct's fields, which Python does not keep, from its source."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found |= _parse_field_docs(inspect.getsource(base))
    return found


def _parse_field_docs(source: str) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, following in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = inspect.cleandoc(str(following.value.value))
            found[field.target.id] = _PYTHON.sub(lambda word: _PYTHON_NAMES[word[0]], text)
    return found
