"""A container of the built image, without an engine: namespaces of its own, a read-only root, no capability.

`tools/image/build.sh` builds the image; TIDEGATE_IMAGE names the directory that it prints. The network is that of the
machine.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

IMAGE: Final = "TIDEGATE_IMAGE"
WRITABLE: Final = ("/tmp", "/var/lib/tidegate")
FROM_MACHINE: Final = ("/etc/hosts", "/etc/resolv.conf")
"""What every engine gives a container."""
UNSHARE: Final = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private")
ENDS_S: Final = 300.0


class Container:
    """What the image says of itself, and commands in it; `work` has what is writable, for all commands of this one."""

    def __init__(self, work: Path, files: Mapping[str, str] | None = None) -> None:
        image = Path(os.environ[IMAGE])
        self.root = (image / "root").resolve()
        inspected = json.loads((image / "config.json").read_text(encoding="utf-8"))
        self.config: dict[str, Any] = inspected["Docker"]["config"]
        self.work = work
        uid, gid = map(int, self.config["User"].split(":"))
        for place in WRITABLE:
            mine = work / place.lstrip("/")
            mine.mkdir(parents=True)
            os.chown(mine, uid, gid)
        self._etc = work / "etc"
        self._etc.mkdir()
        for name, text in (files or {}).items():
            (self._etc / name).write_text(text, encoding="utf-8")

    def run(self, *arguments: str, entrypoint: Sequence[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Arguments of the image's entry point, or of another one, to the end."""
        return subprocess.run(
            self._command(arguments, entrypoint),
            env=self._environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """The same without waiting. It is ended with the process that is returned."""
        with log.open("wb") as out:
            return subprocess.Popen(
                self._command(arguments, None),
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _environ(self) -> dict[str, str]:
        return dict(one.split("=", 1) for one in self.config["Env"])

    def _command(self, arguments: Sequence[str], entrypoint: Sequence[str] | None) -> list[str]:
        uid, gid = self.config["User"].split(":")
        root = shlex.quote(str(self.root))
        mounts = [f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        mounts += [f"mount --bind {shlex.quote(f'{self.work}{place}')} {root}{place}" for place in WRITABLE]
        for file in FROM_MACHINE:
            mounts.append(f"[ -e {root}{file} ] || : >{root}{file}")
            mounts.append(f"mount --bind {file} {root}{file}")
        mounts += [f"mount --bind {self._etc} {root}/etc/tidegate", f"mount -o remount,bind,ro {root}/etc/tidegate"]
        mounts += [f"mount -o remount,bind,ro {root}"]
        rights = ["--reuid", uid, "--regid", gid, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
        inside = ["setpriv", *rights, "--no-new-privs", "env", "-C", self.config["WorkingDir"]]
        command = [*(self.config["Entrypoint"] if entrypoint is None else entrypoint), *arguments]
        script = "\n".join(["set -e", *mounts, f"exec /usr/sbin/chroot {root} {shlex.join([*inside, *command])}"])
        return [*UNSHARE, "sh", "-c", script]
