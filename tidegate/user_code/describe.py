"""Determines what a user's reference is, as plain values: `visits:Visits` is a step with these states and timers.

`describe` imports the user's modules and therefore runs in the probe process. The daemon, the journal and the commands
know user code only by its description. What is wrong in any pipeline is a problem here; what depends on the file is
judged by the kind of step.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final

import msgspec
from pydantic_core import PydanticCustomError

from tidegate.config.fields.columns import TypeProblem, derive_type
from tidegate.config.fields.steps import Ttl, check_ttl
from tidegate.datatypes import DataType
from tidegate.formats.kinds.json.types import convert, record_type
from tidegate.python import List, Map, Step, Timer, Value
from tidegate.state.declaration import ORDERED_KINDS, STATE_NAME
from tidegate.user_code.failure import name_error
from tidegate.user_code.files import LocalFile
from tidegate.user_code.modules import Modules, UserCodeProblem, load, select_modules, split_reference

DIGEST_SHOWN: Final = 12
"""How many digits of a digest are shown."""
DECLARATIONS: Final = (Value, Map, List, Timer)
State = Value[Any] | Map[Any, Any] | List[Any]
Declaration = State | Timer
CLOCKS: Final = ("event-time", "clock")
QUEUES: Final = ("event_timers", "held_timers", "clock_timers", "watermark")
"""Names of the states that hold the timers of a step in the order of their times, and its watermark."""
ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "process": "self, row, out",
        "process_batch": "self, frame, out",
        "on_timer": "self, name, at, out",
        "open": "self, settings",
        "close": "self",
    }
)
"""The methods that a step may define, with their arguments."""
_DECLARED: Final = re.compile(r"(Value|Map|List|Timer)\(")
"""The beginning of a declaration that was written as an annotation."""
_KEYED_BATCH: Final = "self, keys, frame, out"


class DeclaredState(msgspec.Struct, frozen=True):
    """A state that a step declares as an attribute of this name."""

    name: str
    form: str
    """`value`, `map` or `list`."""
    type: DataType
    key_type: DataType | None = None
    default: Any = None
    """A plain value of JSON."""
    ttl: Ttl | None = None


class DeclaredTimer(msgspec.Struct, frozen=True):
    """A timer that a step declares as an attribute of this name."""

    name: str
    clock: bool
    """True: it fires by the slot's clock. False: in event time."""


class CodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference names."""

    reference: str
    digest: str
    """Of the syntax trees of its module and of all modules that travel with it; comments and layout do not count."""
    is_class: bool = False
    is_step: bool = False
    """True for a class derived from `tidegate.python.Step`."""
    is_async: bool = False
    takes_settings: bool = False
    """True for a function that needs a second argument."""
    takes_keys: bool = False
    """True if `process_batch` of a step takes the keys of the batch first."""
    methods: tuple[str, ...] = ()
    """Those of `process`, `process_batch`, `on_timer`, `open` and `close` that the class defines."""
    version: int = 1
    states: tuple[DeclaredState, ...] = ()
    timers: tuple[DeclaredTimer, ...] = ()

    @property
    def mark(self) -> CodeMark:
        """What identifies the code."""
        return CodeMark(self.reference, self.digest, self.version)


class CodeMark(msgspec.Struct, frozen=True):
    """Which user code a step runs, as the journal records it."""

    reference: str
    digest: str
    version: int = 1

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version > 1 else ""
        return f"{self.reference} {self.digest[:DIGEST_SHOWN]}{version}"


class CodeProblem(msgspec.Struct, frozen=True):
    """Why a reference cannot be used."""

    message: str
    remedy: str


class UserCode(msgspec.Struct, frozen=True):
    """All user code of a pipeline."""

    modules: Modules = {}
    """The modules that travel with the plan."""
    found: dict[str, CodeDescription | CodeProblem] = {}
    """By reference."""
    files: tuple[LocalFile, ...] = ()
    """The wheels and data files that `code` of the pipeline file lists."""


def describe(reference: str, modules: Modules) -> CodeDescription | CodeProblem:
    """Imports and describes what a reference names. The modules are installed (`install_modules`)."""
    try:
        found = load(reference)
        facts = _describe_class(found) if isinstance(found, type) else _describe_function(reference, found)
        return CodeDescription(reference=reference, digest=_digest(reference, modules), **facts)
    except UserCodeProblem as problem:
        return CodeProblem(problem.message, problem.remedy)


def _describe_function(reference: str, found: object) -> dict[str, Any]:
    name = split_reference(reference)[1]
    if not callable(found):
        raise UserCodeProblem(f"`{name}` is neither a function nor a class", f"define `def {name}(row)`")
    called = (found, type(found).__call__)
    if any(map(inspect.isasyncgenfunction, called)):
        raise UserCodeProblem(f"`{name}` is an asynchronous generator", f"return values: `async def {name}(row)`")
    takes_settings = not _accepts(found, 1) and _accepts(found, 2)
    if not takes_settings:
        _require_arguments(f"`{name}`", found, 1, "it gets one argument, the row")
    return {"is_async": any(map(inspect.iscoroutinefunction, called)), "takes_settings": takes_settings}


def _describe_class(found: type) -> dict[str, Any]:
    _require_arguments(
        f"the class `{found.__name__}`", found, 0, "its `__init__` takes no arguments: read settings in `open`"
    )
    if issubclass(found, Step):
        return _describe_step(found)
    return _describe_callable_class(found)


def _describe_callable_class(found: type) -> dict[str, Any]:
    """Describes a class as `async` calls it. Raises UserCodeProblem."""
    name = found.__name__
    called = next((vars(base)["__call__"] for base in found.__mro__ if "__call__" in vars(base)), None)
    if called is None:
        raise UserCodeProblem(
            f"the class `{name}` has no `__call__`",
            "derive it from `tidegate.python.Step`, or, for `async`, define `async def __call__(self, row)`",
        )
    _require_arguments(f"`{name}`", called, 2, "it gets one argument, the row as a dict")
    is_async = inspect.iscoroutinefunction(called)
    methods = tuple(method for method in ("open", "close") if hasattr(found, method))
    for method in methods if is_async else ():
        if not inspect.iscoroutinefunction(getattr(found, method)):
            raise UserCodeProblem(f"`{method}` of `{name}` is not async", f"write `async def {method}(self)`")
    return {"is_class": True, "is_async": is_async, "methods": methods}


def _accepts(function: Callable[..., object], arguments: int) -> bool:
    """Returns whether a function can be called with this number of arguments; True if it does not say."""
    try:
        _require_arguments("", function, arguments, "")
    except UserCodeProblem:
        return False
    return True


def _require_arguments(what: str, function: Callable[..., object], arguments: int, remedy: str) -> None:
    """Raises UserCodeProblem if a function cannot be called with this number of arguments."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # of a compiled function
        return
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        raise UserCodeProblem(f"{what} cannot be called: {error}", remedy) from error


# -- classes of steps --------------------------------------------------------------------------------------------------


def _describe_step(found: type[Step]) -> dict[str, Any]:
    """Returns what a step class defines, as fields of `CodeDescription`. Raises UserCodeProblem."""
    methods = _describe_methods(found)
    declared = list(_declarations(found))
    timers = [(name, where, one) for name, where, one in declared if isinstance(one, Timer)]
    states = [(name, where, one) for name, where, one in declared if not isinstance(one, Timer)]
    if timers and "on_timer" not in methods:
        remedy = f"define `def on_timer({ARGUMENTS['on_timer']})`"
        raise UserCodeProblem(f"`{found.__name__}` declares timers and has no `on_timer`", remedy)
    return {
        "is_class": True,
        "is_step": True,
        "methods": methods,
        "takes_keys": "process_batch" in methods and _accepts(_method(found, "process_batch"), 4),
        "version": _version_of(found),
        "states": tuple(starmap(_describe_state, states)),
        "timers": tuple(DeclaredTimer(name, _is_clock(where, one)) for name, where, one in timers),
    }


def _method(found: type[Step], name: str) -> Any:
    """Returns a method that the class or a base of it below `Step` defines; None if there is none."""
    own = found.__mro__[: found.__mro__.index(Step)]
    return next((vars(one)[name] for one in own if name in vars(one)), None)


def _describe_methods(found: type[Step]) -> tuple[str, ...]:
    methods = tuple(name for name in ARGUMENTS if _method(found, name) is not None)
    if "process" not in methods and "process_batch" not in methods:
        raise UserCodeProblem(
            f"the step `{found.__name__}` has no `process`",
            f"define `def process({ARGUMENTS['process']})`, or, with `per: batch`, "
            f"`def process_batch({ARGUMENTS['process_batch']})`",
        )
    for name in methods:
        _check_method(found.__name__, name, _method(found, name))
    return methods


def _check_method(owner: str, name: str, method: Any) -> None:
    what, remedy = f"`{name}` of `{owner}`", f"write `def {name}({ARGUMENTS[name]})`"
    if not inspect.isfunction(method):
        raise UserCodeProblem(f"{what} is not a method", remedy)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise UserCodeProblem(f"{what} is async", f"{remedy}; calls that wait belong in an `async` step")
    if inspect.isgeneratorfunction(method):
        raise UserCodeProblem(f"{what} is a generator", "emit rows with `out.emit(...)` instead of `yield`")
    if name == "process_batch" and _accepts(method, 4):
        return
    if name == "process_batch":
        remedy = f"{remedy}, or, with `key`, `def {name}({_KEYED_BATCH})`"
    _require_arguments(what, method, len(ARGUMENTS[name].split(", ")), remedy)


def _version_of(found: type) -> int:
    version = getattr(found, "version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        remedy = "write a whole number from 1, and raise it when old state must not be continued"
        raise UserCodeProblem(f"`version` of `{found.__name__}` is {_shown(version)}", remedy)
    return version


def _declarations(found: type[Step]) -> Iterator[tuple[str, str, Declaration]]:
    """Yields name, place and declaration, in the order of the source, bases first. Raises UserCodeProblem."""
    attributes: dict[str, object] = {}
    for one in reversed(found.__mro__):
        attributes |= vars(one) if one not in (Step, object) else {}
    for name, value in _annotations(found):
        if name not in attributes and (isinstance(value, DECLARATIONS) or _DECLARED.match(str(value))):
            remedy = f"write `=` instead of `:`: `{name} = {value if isinstance(value, str) else 'Value(...)'}`"
            raise UserCodeProblem(f"`{name}` of `{found.__name__}` has a declaration as its type", remedy)
    seen: dict[int, str] = {}
    for name, value in attributes.items():
        where = f"`{name}` of `{found.__name__}`"
        if isinstance(value, type) and issubclass(value, DECLARATIONS):
            raise UserCodeProblem(f"{where} is the class `{value.__name__}`", 'write its type: `Value("bigint")`')
        if not isinstance(value, DECLARATIONS):
            continue
        if hasattr(Step, name) or name in ARGUMENTS:
            raise UserCodeProblem(f"{where} hides `{name}` of every step", "give it another name")
        if name in QUEUES:
            raise UserCodeProblem(f"{where} has the name of a state that holds timers", "give it another name")
        if not STATE_NAME.fullmatch(name):
            remedy = "use lower-case letters, digits and `_`, and begin with a letter"
            raise UserCodeProblem(f"{where} cannot be the name of a state", remedy)
        if id(value) in seen:
            raise UserCodeProblem(f"{where} is also `{seen[id(value)]}`", "declare each of them")
        seen[id(value)] = name
        yield name, where, value


def _annotations(found: type[Step]) -> Iterator[tuple[str, object]]:
    """Yields the annotations of a class and its bases below `Step`."""
    for one in found.__mro__[: found.__mro__.index(Step)]:
        yield from inspect.get_annotations(one).items()


def _is_clock(where: str, timer: Timer) -> bool:
    if timer.clock not in CLOCKS:
        raise UserCodeProblem(f"{where}: {_shown(timer.clock)} is not a clock", 'write "event-time" or "clock"')
    return timer.clock == "clock"


def _describe_state(name: str, where: str, one: State) -> DeclaredState:
    kind = _type_of(where, one.type)
    key = _type_of(f"the key of {where}", one.key_type) if isinstance(one, Map) else None
    if key is not None and key.kind not in ORDERED_KINDS:
        message = f"the key of {where} is {key}, whose values cannot be compared exactly"
        raise UserCodeProblem(message, "use another type for the key, such as bigint, decimal or string")
    default = _default_of(where, kind, one.default) if isinstance(one, Value) else None
    return DeclaredState(name, one.form, kind, key, default, _ttl_of(where, one.ttl))


def _type_of(where: str, text: object) -> DataType:
    if not isinstance(text, str):
        raise UserCodeProblem(f"{where}: {_shown(text)} is not a type", 'write it as text, for instance "bigint"')
    try:
        return derive_type(text)
    except TypeProblem as problem:
        raise UserCodeProblem(f"{where}: {problem.message}", problem.remedy) from problem


def _default_of(where: str, kind: DataType, default: object) -> Any:
    """Returns a default as a plain value of JSON. Raises UserCodeProblem."""
    if default is None:
        return None
    message = f"{where} is {kind}, and its default is {_shown(default)}"
    try:
        plain = msgspec.json.decode(msgspec.json.encode(default))
        if plain is not None:
            record = record_type("Default", (("default", kind),))
            msgspec.convert({"default": plain}, record, dec_hook=convert, str_keys=True)
            return plain
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # msgspec's errors are among them
        raise UserCodeProblem(message, "write a plain value of that type, or leave it out for None") from error
    raise UserCodeProblem(message, "it has no form in JSON: leave it out for None")  # NaN


def _ttl_of(where: str, value: object) -> Ttl | None:
    if value is None:
        return None
    try:
        return check_ttl(value)
    except PydanticCustomError as error:
        context = error.context or {}
        at = f" {context['at']}:" if context.get("at") else ""
        raise UserCodeProblem(f"`ttl` of {where}:{at} {context['message']}", context["remedy"]) from error


def _shown(value: object) -> str:
    try:
        return f"`{repr(value)[:60]}`"
    except Exception:  # noqa: BLE001  # of the user's class
        return f"a {type(value).__name__}"


# -- digests -----------------------------------------------------------------------------------------------------------


def _digest(reference: str, modules: Modules) -> str:
    module = split_reference(reference)[0]
    texts = select_modules(modules, reference) or {module: _installed_source(module)}
    digest = hashlib.sha256()
    for path, text in sorted(texts.items()):
        digest.update(f"{path}\0{_normalize(text)}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _installed_source(module: str) -> str:
    """Returns the source text of an installed module; empty for a compiled one."""
    spec = importlib.util.find_spec(module)
    read = getattr(None if spec is None else spec.loader, "get_source", None)
    try:
        return "" if read is None else read(module) or ""
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError) as error:
        raise UserCodeProblem(
            f"the source of `{module}` cannot be read: {name_error(error)}", "install it with its source"
        ) from error


def _normalize(text: str) -> str:
    """Returns a text without comments and layout."""
    try:
        return ast.unparse(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):  # a module that is never imported may be wrong
        return text
