"""What this machine has: limits, disks and memory; whether Spark can be started; certificates that expire.

The checkpoint directory is tested. Otherwise nothing is started or changed.
"""

from __future__ import annotations

import datetime
import os
import re
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Final

from tidegate.checks.facts import MachineFacts, Room
from tidegate.checks.findings import Finding, prevent_by, prevent_start, warn_of_start
from tidegate.clock import render_stamp
from tidegate.config.clusters import derive_clusters, place_of
from tidegate.config.encryption import leaves_machine
from tidegate.config.fields.base import Path
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import PipelineSettings
from tidegate.spark.java import JavaMissing, find_java, read_java_version
from tidegate.spark.master import DRIVER_HOST, find_driver_host
from tidegate.spark.versions import (
    RuntimeProblem,
    decide_language_problems,
    decide_spark_problem,
    here,
    read_python,
    read_spark,
)
from tidegate.spark.work_directory import temporary_directory
from tidegate.storage.base import StorageError
from tidegate.storage.local import directory_of
from tidegate.storage.open import StorageOpener, scheme_of

_MEMORY_LIMIT: Final = FilePath("/sys/fs/cgroup/memory.max")
_MEMORY_USED: Final = FilePath("/sys/fs/cgroup/memory.current")
_MEMORY_DETAILS: Final = FilePath("/sys/fs/cgroup/memory.stat")
_CPU_LIMIT: Final = FilePath("/sys/fs/cgroup/cpu.max")
_MEMORY: Final = FilePath("/proc/meminfo")
_MOUNTS: Final = FilePath("/proc/self/mounts")
_ESCAPED: Final = re.compile(rb"\\([0-3][0-7]{2})")
"""Escaped blanks and backslashes in mount points."""
FILES_COUNTED_MAX: Final = 100_000


def read_machine(checkpoints: str, open_storage: StorageOpener, known: StorageError | None = None) -> MachineFacts:
    """Read the facts, and test the checkpoint directory unless the error of a test is already `known`. Blocking."""
    trouble = known or _try_storage(checkpoints, open_storage)
    rooms = [_room(temporary_directory(), (), count=False)]
    if scheme_of(checkpoints) == "file" and not trouble:
        rooms.insert(0, _room(directory_of(checkpoints), ("checkpoints", "directory"), count=True))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MachineFacts(
        rooms=tuple(rooms),
        storage_trouble=trouble,
        open_files=None if hard == resource.RLIM_INFINITY else hard,
        memory_bytes=_memory_left(),
        cpus=_cpus(),
    )


def _try_storage(address: str, open_storage: StorageOpener) -> StorageError | None:
    try:
        open_storage(address).probe()
    except StorageError as error:
        return error
    return None


def _room(directory: FilePath, path: Path, *, count: bool) -> Room:
    system = os.statvfs(directory)
    return Room(
        str(directory),
        path,
        _kind(directory.resolve()),
        system.f_bavail * system.f_frsize,
        system.f_favail if system.f_files else None,
        _size(directory) if count else 0,
    )


def _kind(directory: FilePath) -> str:
    """Find the type of the file system, which is that of the longest mount point above the directory."""
    best, kind = "", ""
    with suppress(OSError):
        for line in _MOUNTS.read_bytes().rstrip(b"\n").split(b"\n"):
            _, mounted, system, *_ = line.split(b" ")
            point = os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), mounted))
            if directory.is_relative_to(point) and len(point) >= len(best):
                best, kind = point, os.fsdecode(system)
    return kind


def _size(directory: FilePath) -> int:
    total = 0
    for number, (folder, _, files) in enumerate(os.walk(directory)):
        if number >= FILES_COUNTED_MAX:
            break
        for name in files:
            with suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118  faster
    return total


def _memory_left() -> int | None:
    """Measure the available memory of the machine, or of this container if that is less."""
    left: list[int] = []
    with suppress(OSError, ValueError):
        lines = dict(line.split(":", 1) for line in _MEMORY.read_text("ascii").splitlines())
        left.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError, KeyError):
        details = dict(line.split() for line in _MEMORY_DETAILS.read_text("ascii").splitlines())
        # Page cache that the kernel can reclaim.
        used = int(_MEMORY_USED.read_text("ascii")) - int(details["inactive_file"])
        left.append(int(_MEMORY_LIMIT.read_text("ascii")) - used)
    return min(left, default=None)


def _cpus() -> int:
    """Count the processors that this process may use."""
    count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = map(int, _CPU_LIMIT.read_text("ascii").split())
        count = min(count, max(1, quota // period))
    return count


# -- whether Spark can be started, and executors can reach the daemon --------------------------------------------------

_PYTHON = "spark.pyspark.python"


def find_runtime_problems(loaded: LoadedPipeline) -> list[Finding]:
    """Find what would keep Spark from starting. The slots' interpreter is run, if it is on this machine."""
    spark = read_spark()
    problem = decide_spark_problem(spark, os.environ)
    if problem is not None:
        return [_place_problem(loaded, problem)]
    try:
        java = read_java_version(find_java())
    except JavaMissing as error:
        return [prevent_by(("spark",), error)]
    program = reveal(loaded.settings.spark).get(_PYTHON) or os.environ.get("PYSPARK_PYTHON", "")
    workers = read_python(program) if program and loaded.settings.spark_master.startswith("local") else ""
    found = [_place_problem(loaded, one) for one in decide_language_problems(spark.library, java, here(), workers)]
    return [*found, *find_address_problems(loaded)]


def find_address_problems(
    loaded: LoadedPipeline, resolve: Callable[[str], str] = socket.gethostbyname
) -> list[Finding]:
    """Judge the daemon's address that executors receive.

    An IPv6 address prevents a start, because daemon and slots listen on IPv4. An address that means the executor's own
    machine is a warning, because all executors may run on this machine.
    """
    master, properties = loaded.settings.spark_master, reveal(loaded.settings.spark)
    host = find_driver_host(master, properties, resolve)
    if ":" in host:
        found = f"executors cannot reach the daemon: `{DRIVER_HOST}` is {host}, and daemon and slots use IPv4"
        remedy = "set it to an IPv4 address of this machine, or a name that has one"
        return [prevent_start(("spark", DRIVER_HOST), found, remedy)]
    if not leaves_machine(master) or not host.startswith("127."):
        return []
    given = DRIVER_HOST in properties
    why = "is" if given else f"is not set, and the name of this machine ({socket.gethostname()}) means"
    place: Path = ("spark", DRIVER_HOST) if given else ("spark",)
    found = f"executors on other machines cannot reach the daemon: `{DRIVER_HOST}` {why} {host}"
    return [warn_of_start(place, found, f"set `{DRIVER_HOST}` to an IPv4 address of this machine that they reach")]


def _place_problem(loaded: LoadedPipeline, problem: RuntimeProblem) -> Finding:
    path: Path = ("spark", problem.name) if problem.name in loaded.settings.spark else ("spark",)
    return prevent_start(path, problem.message, problem.remedy)


# -- certificates that expire: the daemon's own, and those that it presents to others ----------------------------------

SOON_MS: Final = 14 * 24 * 3600 * 1000
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
"""The tag of the optional first field of a certificate."""
_TWO_DIGITS: Final = 0x17
"""The tag of a time whose year has two digits, from 1950 to 2049 (RFC 5280)."""


def check_certificates(settings: PipelineSettings, now_ms: int) -> Iterator[Finding]:
    """Warns of each certificate that the pipeline file names and that is valid for less than 14 more days.

    A file that cannot be read, or has no certificate, is refused where it is used, and skipped here.
    """
    for place, file in _named(settings):
        end_ms = None
        with suppress(OSError, ValueError):
            end_ms = read_end(FilePath(file).read_text("ascii", errors="replace"))
        if end_ms is not None and end_ms - now_ms < SOON_MS:
            what = "expired" if end_ms < now_ms else "expires"
            remedy = "renew it; a running daemon reads the new file by itself"
            yield warn_of_start(place, f"the certificate {file} {what} at {render_stamp(end_ms)}", remedy)


def _named(settings: PipelineSettings) -> Iterator[tuple[Path, str]]:
    """Yields the file of each certificate with its place."""
    if settings.http.tls is not None:
        yield ("http", "tls", "certificate"), settings.http.tls.certificate
    if settings.registry is not None and settings.registry.certificate is not None:
        yield ("registry", "certificate"), settings.registry.certificate
    for name, properties in derive_clusters(settings).items():
        if (file := properties.get("ssl.certificate.location")) is not None:
            yield (*place_of(name), "ssl.certificate.location"), file


def read_end(pem: str) -> int:
    """Returns the end of the validity of the first certificate in a PEM text, in ms since 1970.

    Python's `ssl` decodes only certificates of peers and of authorities. Raises ValueError if there is no certificate.
    """
    _, begin, rest = pem.partition(_BEGIN)
    der = ssl.PEM_cert_to_DER_cert(f"{begin}{rest.partition(_END)[0]}{_END}")
    try:
        _, at, _ = _element(der, 0)  # the certificate: what is signed, then the signature
        _, at, _ = _element(der, at)
        tag, _, end = _element(der, at)
        at = end if tag == _VERSION else at
        for _ in range(3):  # serial number, algorithm, issuer
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)  # validity: two times
        _, _, at = _element(der, at)
        tag, start, end = _element(der, at)
    except IndexError as error:
        raise ValueError("the certificate is cut off") from error
    text = der[start:end].decode("ascii")
    if tag == _TWO_DIGITS:
        text = f"{20 if text < '5' else 19}{text}"
    moment = datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Returns the tag of the DER element at a place, and where its contents start and end."""
    start, size = at + 2, der[at + 1]
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + size
