"""What is known against the packages of the locks: `make audit`, in an environment with pip-audit and uv.

Two questions. Has a maintainer withdrawn a version (PEP 592)? The index itself says so, mirrors included. Is a
vulnerability of it known? pip-audit asks PyPI, or OSV with `--service osv`; mirrors lack these lists, so
`--advisories DIRECTORY`, or TIDEGATE_ADVISORIES in the environment, reads a copy of them instead: records in OSV's
format, as the Python Packaging Advisory Database keeps them.
Exit code 0 only when every package could be looked up and nothing is known.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
YANKED: Final = re.compile(r"^warning: `([^`]+)==([^`]+)` is yanked(?: \(reason: \"(.*)\"\))?", re.MULTILINE)
TIMEOUT_S: Final = 600.0
TAIL: Final = 500


class Pin(NamedTuple):
    """One locked package."""

    name: str
    version: str


class Audit(NamedTuple):
    """What came out."""

    known: list[str]
    """One line each."""
    unknown: list[Pin]
    """Nobody could say anything about these."""
    source: str
    """Whose word it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locks", type=Path, nargs="+")
    parser.add_argument("--service", choices=["pypi", "osv"], default="pypi")
    copy = os.environ.get("TIDEGATE_ADVISORIES")
    parser.add_argument(
        "--advisories", type=Path, default=copy and Path(copy), help="directory of records, instead of a service"
    )
    options = parser.parse_args(arguments)
    pins = sorted({pin for lock in options.locks for pin in read_pins(lock.read_text(encoding="utf-8"))})
    withdrawn = [line for lock in options.locks for line in ask_index(lock)]
    audit = (
        ask_service(options.locks, options.service) if options.advisories is None else search(pins, options.advisories)
    )
    for line in [*dict.fromkeys(withdrawn), *audit.known]:
        print(line)
    counts = f"{len(set(withdrawn))} withdrawn, {len(audit.known)} known vulnerabilities"
    print(f"{len(pins)} packages, {counts} ({audit.source})")
    if audit.unknown:
        first = audit.unknown[0].name
        print(
            f"{len(audit.unknown)} of them could not be looked up, {first} among them: a mirror of PyPI has no list of"
        )
        print('vulnerabilities. Ask OSV (ARGS="--service osv"), or search a copy (ARGS="--advisories DIRECTORY")')
    return bool(withdrawn or audit.known or audit.unknown)


def read_pins(lock: str) -> set[Pin]:
    """Of a lock's text; versions for other Pythons included."""
    return {Pin(canonicalize_name(name), version) for name, version in PIN.findall(lock)}


def read_withdrawn(said: str) -> list[str]:
    """From what uv has printed."""
    return [f"{name} {version} is withdrawn: {why or 'no reason given'}" for name, version, why in YANKED.findall(said)]


def ask_index(lock: Path) -> list[str]:
    """Which versions are withdrawn. uv reads only the index, so nothing is downloaded."""
    options = ["--no-deps", "--universal", "--no-header", "--system-certs"]
    ran = _run([str(Path(sys.executable).with_name("uv")), "pip", "compile", *options, str(lock)])
    if ran.returncode != 0:
        raise SystemExit(f"{lock}: the index was not reached: {ran.stderr[-TAIL:]}")
    return read_withdrawn(ran.stderr)


def ask_service(locks: Sequence[Path], service: str) -> Audit:
    """By pip-audit."""
    options = ["--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json"]
    files = [word for lock in locks for word in ("-r", str(lock))]
    ran = _run([sys.executable, "-m", "pip_audit", *options, f"--vulnerability-service={service}", *files])
    try:
        told = json.loads(ran.stdout)
    except ValueError as error:
        raise SystemExit(f"pip-audit could not ask {service}: {ran.stderr[-TAIL:]}") from error
    return read_report(told["dependencies"], service)


def read_report(dependencies: Iterable[Mapping[str, Any]], service: str) -> Audit:
    """What pip-audit says of each package; one that it has skipped has no version."""
    known, unknown = [], []
    for one in dependencies:
        if "skip_reason" in one:
            unknown.append(Pin(one["name"], ""))
        for record in one.get("vulns", ()):
            mended = ", ".join(record["fix_versions"]) or "no version"
            known.append(f"{one['name']} {one['version']}: {record['id']}, mended in {mended}")
    return Audit(sorted(set(known)), sorted(set(unknown)), service)


def search(pins: Sequence[Pin], directory: Path) -> Audit:
    """In a copy of the lists."""
    records = list(read_records(directory))
    if not records:
        raise SystemExit(f"{directory}: no records in OSV's format (*.yaml, *.json) below it")
    newest = max(str(record.get("modified", "")) for record in records)[:10]
    known = sorted(line for record in records for line in derive_lines(pins, record))
    return Audit(known, [], f"{len(records)} records of {directory}, the newest of {newest}")


def read_records(directory: Path) -> Iterable[Mapping[str, Any]]:
    """All that have not been taken back."""
    for path in sorted(directory.rglob("*")):
        if path.suffix not in (".yaml", ".json"):
            continue
        record = yaml.load(path.read_bytes(), yaml.CSafeLoader)  # JSON is YAML, too
        if isinstance(record, dict) and "affected" in record and "withdrawn" not in record:
            yield record


def derive_lines(pins: Iterable[Pin], record: Mapping[str, Any]) -> list[str]:
    """What a record says against these packages."""
    named = [one for one in record["affected"] if one["package"]["ecosystem"] == "PyPI"]
    return [
        f"{pin.name} {pin.version}: {record['id']}{_aliases(record)}"
        for pin in pins
        if any(
            canonicalize_name(one["package"]["name"]) == pin.name and is_affected(Version(pin.version), one)
            for one in named
        )
    ]


def is_affected(version: Version, affected: Mapping[str, Any]) -> bool:
    """As OSV evaluates it: a listed version, or one within a range of versions."""
    if any(_parse(one) == version for one in affected.get("versions", ())):
        return True
    ranges = [one["events"] for one in affected.get("ranges", ()) if one["type"] in ("ECOSYSTEM", "SEMVER")]
    return any(_is_within(version, events) for events in ranges)


def _is_within(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """The newest event before the version decides. `last_affected` is the last that is in it."""
    within = False
    for event in sorted(events, key=_place):
        at, kind = _place(event), next(iter(event))
        if at < version or (at == version and kind != "last_affected"):
            within = kind == "introduced"
    return within


def _place(event: Mapping[str, str]) -> Version:
    return _parse(next(iter(event.values()))) or Version("0")


def _parse(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:  # of old packages; no lock can have one
        return None


def _aliases(record: Mapping[str, Any]) -> str:
    names = ", ".join(record.get("aliases", ()))
    return f" ({names})" if names else ""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


if __name__ == "__main__":
    sys.exit(main())
