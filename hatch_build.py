"""What the build backend calls: C is compiled where there is a compiler, and left out where there is none (ADR 67)."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH: Final = "TIDEGATE_BUILD_NATIVE"
"""`0` makes a wheel for every machine, `1` makes it an error that nothing can be compiled."""


class CompiledEdge(BuildHookInterface[Any]):
    """The shared object next to its sources, for the checkout that is installed, or for a wheel of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the interface's signature
        """Raises RuntimeError where it must be compiled and cannot be."""
        wanted = os.environ.get(SWITCH, "")
        if wanted == "0":
            return
        sys.path.insert(0, self.root)
        try:
            from tidegate.native.build import TARGET, compile_library

            problem = compile_library()
        finally:
            sys.path.remove(self.root)
        if not problem:
            build_data["artifacts"].append(f"/{TARGET.relative_to(Path(self.root)).as_posix()}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        elif wanted == "1":
            raise RuntimeError(problem)
        else:
            self.app.display_warning(f"without compiled code, which costs CPU time only: {problem}")
