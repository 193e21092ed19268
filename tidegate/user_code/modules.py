"""Modules of users: found next to the pipeline file, sent to the slots as text, and imported there.

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
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any, Final

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import ValueCheck, refusal, require_text
from tidegate.user_code.failure import find_place, name_error

BYTES_MAX: Final = 4 << 20
"""The maximum size of all modules together, because every deployment contains them."""

Modules = Mapping[str, str]
"""Maps the path below the pipeline file's directory, with `/`, to source text."""


class UserCodeProblem(Exception):
    """User code that cannot be used: message and remedy."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


def split_reference(reference: str) -> tuple[str, str]:
    """Returns the module and the name of `module:name`. Raises UserCodeProblem."""
    module, colon, name = reference.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
        raise UserCodeProblem(f"`{reference[:80]}` is not `module:name`", "for instance lookup.geo:resolve")
    return module, name


def read_modules(directory: Path, references: Iterable[str]) -> dict[str, str]:
    """Returns the modules below the directory that these references need. Raises UserCodeProblem."""

    def read(top: str) -> Modules:
        return {path.relative_to(directory).as_posix(): _read(path) for path in _files_of(directory, top)}

    return _collect(references, read)


def select_modules(modules: Modules, reference: str) -> dict[str, str]:
    """Returns those of the modules that a reference needs."""
    return _collect([reference], lambda top: {path: text for path, text in modules.items() if _top_of(path) == top})


def _collect(references: Iterable[str], read: Callable[[str], Modules]) -> dict[str, str]:
    """Returns the modules of the references, and all that they import. `read` returns those of a top-level name."""
    found: dict[str, str] = {}
    waiting = [split_reference(reference)[0].partition(".")[0] for reference in references]
    tried: set[str] = set()
    while waiting:
        top = waiting.pop()
        if top in tried:
            continue
        tried.add(top)
        for path, source in read(top).items():
            found[path] = source
            if sum(map(len, found.values())) > BYTES_MAX:
                raise UserCodeProblem(
                    f"the modules next to the pipeline file have more than {BYTES_MAX >> 20} MiB",
                    "install them as a package where the daemon and the executors run",
                )
            waiting += _imported(source)
    return dict(sorted(found.items()))


def _top_of(path: str) -> str:
    return PurePosixPath(path).with_suffix("").parts[0]


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
        raise UserCodeProblem(f"`{top}` next to the pipeline file would replace Python's own `{top}`", "rename it")
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


@contextmanager
def isolate_modules(modules: Modules) -> Iterator[None]:
    """Within the block, these modules are imported anew; afterwards the previous ones are restored.

    So an attempt in the process of a test or a notebook begins without what the code of the last one has kept.
    """
    tops = set(map(_top_of, modules))
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in tops}
    finders = [one for one in sys.meta_path if isinstance(one, _Finder)]
    sys.meta_path[:] = [one for one in sys.meta_path if one not in finders]
    _forget(modules)
    try:
        yield
    finally:
        install_modules({})
        _forget(modules)
        sys.modules.update(before)
        sys.meta_path[:0] = finders


def _forget(modules: Modules) -> None:
    tops = set(map(_top_of, modules))
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]


def load(reference: str) -> Any:
    """Imports what a reference names. Raises UserCodeProblem."""
    module_name, name = split_reference(reference)
    try:
        module = importlib.import_module(module_name)
    except SystemExit as error:
        raise UserCodeProblem(
            f"the module `{module_name}` ends the process when it is imported: {name_error(error)}",
            "importing a module must not end the process, nor start anything lasting",
        ) from error
    except Exception as error:
        raise UserCodeProblem(
            f"the module `{module_name}` cannot be imported: {name_error(error)}", _remedy_for(error)
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        own = [one for one in vars(module) if not one.startswith("_")]
        remedy = derive_suggestion(name, own, otherwise=f"define `{name}` in it") if own else f"define `{name}` in it"
        raise UserCodeProblem(f"`{module_name}` has no `{name}`", remedy) from None


def _remedy_for(error: Exception) -> str:
    """Returns the remedy for a module that cannot be imported: it is missing, or something in it fails."""
    if isinstance(error, ModuleNotFoundError):
        return (
            "put it next to the pipeline file, list its wheel under `code`, or install it where the daemon and the "
            "executors run"
        )
    place = "" if isinstance(error, SyntaxError) else find_place(error)
    return f"correct the module, at {place}" if place else "correct the module"


def reference_check(example: str) -> ValueCheck:
    """Returns the check of a setting that names user code. `example` is shown as a remedy and in the JSON Schema."""

    def check(value: object) -> str:
        text = require_text(value, "`module:name`", f"for instance {example}")
        try:
            split_reference(text)
        except UserCodeProblem as problem:
            raise refusal(problem.message, f"for instance {example}") from problem
        return text

    return ValueCheck(check, {"type": "string", "examples": [example]})
