"""Compiles the shared object: in the build of a wheel or of the development environment, and with `python -m`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
TARGET: Final = SOURCES / "edge.so.1"
"""Does not end in `.so`, since tools that search for modules would take it for one."""
FLAGS: Final = ("-O2", "-std=c11", "-fPIC", "-shared")


def find_compiler() -> list[str] | None:
    """Returns the command in CC, which may have arguments (`ccache gcc`), else `cc`; None if there is none."""
    try:
        words = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError:  # an unclosed quote
        return None
    found = shutil.which(words[0])
    return None if found is None else [found, *words[1:]]


def compile_library(target: Path = TARGET, flags: tuple[str, ...] = FLAGS) -> str:
    """Compiles all C files.

    Replaces an existing target atomically, so that a running process keeps its own. Returns the reason if it fails, or
    an empty text.
    """
    compiler = find_compiler()
    if compiler is None:
        named = os.environ.get("CC", "").strip()
        return "there is no C compiler" + (f" `{named}`, which CC names" if named else "")
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    done = subprocess.run(
        [*compiler, *flags, "-o", str(unfinished), *sources], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        unfinished.unlink(missing_ok=True)
        return f"{shlex.join(compiler)} failed: {done.stderr.strip() or f'exit code {done.returncode}'}"
    unfinished.replace(target)
    return ""


if __name__ == "__main__":
    sys.exit(compile_library() or None)
