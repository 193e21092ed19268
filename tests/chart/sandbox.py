"""What a container sees of its machine: its volumes at their places, everything else read-only, no capability.

Linux does what a container engine would ask for: a mount namespace of its own, binds, and overlays where a mount point
does not exist. What is run is this checkout in place of an image.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tests.chart.programs import ROOT
from tidegate.spark.java import java_home
from tidegate.spark.work_directory import cache_directory

ENTRYPOINT: Final = ROOT / "packaging" / "image" / "entrypoint.sh"
CACHE: Final = "/opt/tidegate/cache"
ASIDE: Final = "/mnt"
"""For the time of mounting."""
_VARIABLE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class Mount(NamedTuple):
    """A directory or file of this machine at a place of the container."""

    source: Path
    place: str
    read_only: bool


def image_environment() -> dict[str, str]:
    """What the image's own variables would be."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "SPARK_HOME": str(Path(found.origin).parent),
        "JAVA_HOME": str(java_home()),
        "TIDEGATE_CACHE": CACHE,
    }


def expand(text: str, environ: Mapping[str, str]) -> str:
    """`$(NAME)` as in a pod's arguments."""
    return _VARIABLE.sub(lambda found: environ.get(found[1], found[0]), text)


def derive_command(command: Sequence[str], arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """What a container runs; the image's entry point unless the pod has a `command`."""
    whole = [*(command or ["sh", str(ENTRYPOINT)]), *arguments]
    return [expand(one, environ) for one in whole]


def spawn(
    command: Sequence[str], environ: Mapping[str, str], mounts: Sequence[Mount], work: Path, root: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Run it in a new mount namespace, as a process group of its own."""
    cache = cache_directory()
    (cache / "schemas").mkdir(parents=True, exist_ok=True)
    script = render_script([Mount(cache, CACHE, read_only=True), *mounts], work, root)
    inside = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *command]
    with log.open("ab") as out:
        return subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{script}\nexec {shlex.join(inside)}"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            start_new_session=True,
        )


def run_inside(pid: int, command: Sequence[str], environ: Mapping[str, str], log: Path, timeout_s: float) -> int:
    """Run another command in a container, as an exec hook does; its exit code."""
    with log.open("ab") as out:
        ran = subprocess.run(
            ["nsenter", "--target", str(pid), "--mount", *command],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=timeout_s,
            check=False,
        )
    return ran.returncode


def render_script(mounts: Sequence[Mount], work: Path, root: Path) -> str:
    """The mounts, outer ones first. What they come from, below `root`, stays reachable when /tmp is covered."""
    real = sorted((mount._replace(place=os.path.realpath(mount.place)) for mount in mounts), key=lambda one: one.place)
    missing = [one.place for one in real if not Path(one.place).exists() and not _is_below(one.place, real)]
    lines = ["set -e"]
    covered: list[str] = []
    for ancestor in sorted({_ancestor(place) for place in missing}):
        if not any(ancestor.startswith(one + "/") for one in covered):
            lines.append(_overlay(ancestor, work / str(len(covered))))
            covered.append(ancestor)
    lines.append(f"mount --bind {root} {ASIDE}")
    for mount in real:
        source = str(mount.source)
        if mount.source.is_relative_to(root):
            source = f"{ASIDE}/{mount.source.relative_to(root)}"
        quoted = shlex.quote(mount.place)
        make = "mkdir -p" if mount.source.is_dir() else "touch"
        lines.append(f"[ -e {quoted} ] || {make} {quoted}")
        lines.append(f"mount --bind {shlex.quote(source)} {quoted}")
        if mount.read_only:
            lines.append(f"mount -o remount,bind,ro {quoted}")
    lines.append(f"umount {ASIDE}")
    lines += [f"mount -o remount,ro {one}" for one in covered]
    lines.append("mount -o remount,bind,ro /")
    return "\n".join(lines)


def _overlay(directory: str, work: Path) -> str:
    """Mount points can be made in it."""
    for name in ("upper", "inner"):
        (work / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={directory},upperdir={work}/upper,workdir={work}/inner"
    return f"mount -t overlay overlay -o {options} {directory}"


def _is_below(place: str, mounts: Sequence[Mount]) -> bool:
    return any(place.startswith(one.place + "/") for one in mounts)


def _ancestor(place: str) -> str:
    """The nearest directory that exists, of a place that does not."""
    return next(str(one) for one in Path(place).parents if one.is_dir())
