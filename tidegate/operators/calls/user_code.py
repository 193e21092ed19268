"""A user's functions: found next to the pipeline file, sent to the slots as text, and imported there.

`lookup.geo:resolve` is first looked up in the directory of the pipeline file. If it is there, it is read with all
modules of that directory that it imports, travels in the plan, and is imported from memory in each slot. So nothing is
written to an executor's disk, and every attempt of a daemon runs the same code. Otherwise it must be installed where
the daemon and the executors run.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Final

BYTES_MAX: Final = 4 << 20
"""The maximum size of all modules together, because every deployment contains them."""

Modules = Mapping[str, str]
"""Maps the path below the pipeline file's directory, with `/`, to source text."""


class UserCodeProblem(Exception):
    """A function that cannot be used: message and remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


def split_reference(reference: str) -> tuple[str, str]:
    """Returns the module and the name of `module:name`. Raises UserCodeProblem."""
    module, colon, name = reference.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
        raise UserCodeProblem(f"`{reference[:80]}` is not `module:function`", "for instance lookup.geo:resolve")
    return module, name


def read_modules(directory: Path, references: Iterable[str]) -> dict[str, str]:
    """Returns the modules below the directory that these references need. Raises UserCodeProblem."""
    found: dict[str, str] = {}
    waiting = [split_reference(reference)[0].partition(".")[0] for reference in references]
    looked: set[str] = set()
    while waiting:
        top = waiting.pop()
        if top in looked:
            continue
        looked.add(top)
        for path in _files_of(directory, top):
            source = _read(path)
            found[path.relative_to(directory).as_posix()] = source
            if sum(map(len, found.values())) > BYTES_MAX:
                raise UserCodeProblem(
                    f"the modules beside the pipeline file have more than {BYTES_MAX >> 20} MiB",
                    "install them as a package where the daemon and the executors run",
                )
            waiting += _imported(source)
    return dict(sorted(found.items()))


def _files_of(directory: Path, top: str) -> Sequence[Path]:
    """Returns files in Python's order of precedence: a package, a module, and, after installed ones, a directory
    without `__init__.py`.

    In a slot they precede everything else, so none may have the name of a module of Python's standard library.
    """
    package, module = directory / top, directory / f"{top}.py"
    whole = (package / "__init__.py").is_file()
    files = sorted(path for path in package.rglob("*.py") if path.is_file())
    if not whole and module.is_file():
        whole, files = True, [module]
    if not files or (not whole and _is_installed(top)):
        return []
    if top in sys.stdlib_module_names:
        raise UserCodeProblem(f"`{top}` beside the pipeline file would stand for Python's own `{top}`", "rename it")
    return files


def _is_installed(top: str) -> bool:
    if top in sys.stdlib_module_names:
        return True
    found = importlib.util.find_spec(top)
    return found is not None and found.origin is not None  # a directory has no origin


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark, which Python ignores
    except (OSError, UnicodeDecodeError) as error:
        raise UserCodeProblem(f"{path} cannot be read: {error}", "correct the file") from error


def _imported(source: str) -> Iterator[str]:
    """Yields the top-level names that a module imports; none if it cannot be parsed, which its import reports."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports from the texts of `modules`."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self._paths: dict[str, str] = {}
        for path in modules:
            parts = PurePosixPath(path).with_suffix("").parts
            self._paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  # the signature of the standard library
        target: ModuleType | None = None,  # noqa: ARG002  # the signature of the standard library
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module in `modules`; None for any other."""
        if fullname not in self._paths and not self.is_package(fullname):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname))

    def is_package(self, fullname: str) -> bool:
        """Returns True for a package, which is a directory with or without `__init__.py`."""
        return any(name.startswith(f"{fullname}.") for name in self._paths) or self._paths.get(fullname, "").endswith(
            "__init__.py"
        )

    def get_source(self, fullname: str) -> str:
        """Returns the source text of a module; empty for a directory without `__init__.py`."""
        return self.modules.get(self._paths.get(fullname, ""), "")

    def get_code(self, fullname: str) -> CodeType:
        """Compiles a module. Its file name is the path below the pipeline file's directory."""
        return compile(self.get_source(fullname), self._paths.get(fullname, fullname), "exec", dont_inherit=True)


def install_modules(modules: Modules) -> None:
    """Makes these modules importable from memory, ahead of installed modules of the same names.

    A process that has run another deployment forgets the modules of that one.
    """
    for former in [one for one in sys.meta_path if isinstance(one, _Finder)]:
        if former.modules == modules:
            return
        sys.meta_path.remove(former)
        _forget(former.modules)
    if modules:
        _forget(modules)
        sys.meta_path.insert(0, _Finder(dict(modules)))


def _forget(modules: Modules) -> None:
    tops = {PurePosixPath(path).with_suffix("").parts[0] for path in modules}
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]


def load_function(reference: str) -> object:
    """Returns an `async def` of one argument, or a class with such a `__call__`. Raises UserCodeProblem."""
    module_name, name = split_reference(reference)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserCodeProblem(
            f"the module `{module_name}` cannot be imported: {type(error).__name__}: {error}", _remedy_for(error)
        ) from error
    found = getattr(module, name, None)
    if found is None:
        raise UserCodeProblem(f"`{module_name}` has no `{name}`", f"define `async def {name}(row)` in it")
    _check(reference, found)
    return found


def _remedy_for(error: Exception) -> str:
    """Returns the remedy for a module that cannot be imported: it is missing, or something in it fails."""
    if isinstance(error, ModuleNotFoundError):
        return "put it beside the pipeline file, or install it where the daemon and the executors run"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "importlib" not in one.filename]
    if isinstance(error, SyntaxError) or len(frames) < 2:  # the first frame is this module's
        return "correct the module"
    return f"correct the module, at line {frames[-1].lineno} of {frames[-1].filename}"


def _check(reference: str, found: object) -> None:
    name = reference.partition(":")[2]
    asked = found
    if isinstance(found, type):
        asked = next((vars(base)["__call__"] for base in found.__mro__ if "__call__" in vars(base)), None)
        if asked is None:
            raise UserCodeProblem(f"the class `{name}` has no `__call__`", "define `async def __call__(self, row)`")
        _accepts(f"the class `{name}`", found, (), "its `__init__` takes no arguments: read settings in `open`")
    if not inspect.iscoroutinefunction(asked):
        raise UserCodeProblem(
            f"`{name}` is not async", f"write `async def {name}(row)`: what blocks would stop all calls"
        )
    row: tuple[object, ...] = (None, {}) if isinstance(found, type) else ({},)
    _accepts(f"`{name}`", asked, row, "it gets one argument, the row as a dict")
    for method in ("open", "close") if isinstance(found, type) else ():
        own = getattr(found, method, None)
        if own is not None and not inspect.iscoroutinefunction(own):
            raise UserCodeProblem(f"`{method}` of `{name}` is not async", f"write `async def {method}(self)`")


def _accepts(what: str, function: object, arguments: Sequence[object], remedy: str) -> None:
    assert callable(function)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise UserCodeProblem(f"{what} cannot be called: {error}", remedy) from error
