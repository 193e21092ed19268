"""Judges this machine, or container: the checkpoint directory, disks, open files, memory, processors. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.checks.facts import DIRECTORY, MachineFacts, Room
from tidegate.checks.findings import Finding, Severity
from tidegate.config.fields.counts import render_count, render_size
from tidegate.config.models import PipelineSettings
from tidegate.plan.graph import Plan
from tidegate.process.limits import DESCRIPTORS_MAX
from tidegate.storage.base import StorageError, is_lasting

MIB: Final = 1 << 20
FREE_BYTES_MIN: Final = 100 * MIB
FREE_BYTES_GOOD: Final = 1024 * MIB
FREE_INODES_MIN: Final = 1000
TIMES: Final = 3
"""A checkpoint is written completely before an older one is removed, and several are retained."""
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
OF_ONE_MACHINE: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "ramfs"})

DAEMON_FILES: Final = 300
"""Spark's driver, 100 HTTP connections, the journal, clients."""
SLOT_FILES: Final = 80
"""The slot's interpreter, control connection, uploads, and broker connections."""
ROCKS_FILES: Final = 300
"""Files that one RocksDB state keeps open."""
DAEMON_BYTES: Final = 400 * MIB
SLOT_BYTES: Final = 150 * MIB
"""Estimates without state: 111 MiB were measured per slot; 379 MiB for daemon, JVM and the process that forks slots."""


def judge_machine(settings: PipelineSettings, plan: Plan, facts: MachineFacts) -> list[Finding]:
    """Judge this machine, in the order of CHECKS."""
    here = settings.parallelism if settings.spark_master.startswith("local") else 0
    findings = [*_directory(settings, facts)]
    findings += [finding for room in facts.rooms for finding in _space(room)]
    findings.append(_files(settings, plan, facts, here))
    if here:
        findings += [*_memory(facts, here), *_cpus(facts, here)]
    return findings


def judge_storage_error(error: StorageError) -> Finding:
    """Judge the error of a test of the checkpoint directory. The exit code is 2 if the next start would meet it."""
    code = 2 if error.exit_code == 1 and is_lasting(error) else error.exit_code
    return Finding(
        "checkpoint-directory",
        Severity.PROBLEM,
        error.message,
        place=DIRECTORY,
        prevents_start=True,
        exit_code=code,
        cause=error,
    )


def _directory(settings: PipelineSettings, facts: MachineFacts) -> Iterator[Finding]:
    expected = "durable, and one directory for daemon and executors"
    if (trouble := facts.storage_trouble) is not None:
        yield judge_storage_error(trouble)
        return
    room = next((one for one in facts.rooms if one.place == DIRECTORY), None)
    kind = room.system if room is not None else ""
    tried = f"written, read and deleted; {kind or 'an object store'}"
    subject = room.directory if room is not None else ""
    if kind in IN_MEMORY:
        remedy = "checkpoints: {directory: file:///a/directory/on/a/disk}"
        value = f"{kind} is in memory: checkpoints are lost with the machine"
        yield Finding("checkpoint-directory", Severity.PROBLEM, value, expected, remedy, DIRECTORY, subject)
    elif kind in OF_ONE_MACHINE and not settings.spark_master.startswith("local"):
        remedy = f"mount it on every machine of {settings.spark_master}; `tidegate doctor --spark` tests that"
        value = f"{tried}, on a disk of this machine, but executors run on other machines"
        yield Finding("checkpoint-directory", Severity.WARNING, value, expected, remedy, DIRECTORY, subject)
    else:
        yield Finding("checkpoint-directory", Severity.OK, tried, expected, place=DIRECTORY, subject=subject)


def _space(room: Room) -> Iterator[Finding]:
    good = max(FREE_BYTES_GOOD, TIMES * room.used_bytes)
    few = room.free_inodes is not None and room.free_inodes < FREE_INODES_MIN
    value = f"{render_size(room.free_bytes)} free" + (f" and {room.free_inodes} inodes" if few else "")
    severity = Severity.OK
    if few or room.free_bytes < FREE_BYTES_MIN:
        severity = Severity.PROBLEM
    elif room.free_bytes < good:
        severity = Severity.WARNING
    remedy = "" if severity is Severity.OK else f"free space on the file system of {room.directory}, or use another one"
    code = 1  # whatever fills it may stop, or be removed
    yield Finding("disk-space", severity, value, render_size(good), remedy, room.place, room.directory, exit_code=code)


def derive_files_needed(settings: PipelineSettings, plan: Plan, slots_here: int) -> int:
    """Estimate the descriptors that the daemon or a slot needs, whichever is more."""
    slots, vertices = settings.parallelism, len(plan.vertices)
    rocks = ROCKS_FILES * vertices if settings.state.backend == "rocksdb" else 0
    slot = SLOT_FILES + 2 * slots + rocks
    return max(DAEMON_FILES + 2 * slots, slot if slots_here else 0)


def _files(settings: PipelineSettings, plan: Plan, facts: MachineFacts, here: int) -> Finding:
    needed = derive_files_needed(settings, plan, here)
    limit = facts.open_files
    value = f"RLIMIT_NOFILE is {'unlimited' if limit is None else limit}"
    expected = f"{2 * needed} or more"
    if limit is None or limit >= 2 * needed:
        return Finding("open-files", Severity.OK, value, expected)
    severity = Severity.PROBLEM if limit < needed else Severity.WARNING
    remedy = f"ulimit -Hn {DESCRIPTORS_MAX}; LimitNOFILE={DESCRIPTORS_MAX} in a systemd unit"
    return Finding("open-files", severity, value, expected, remedy)


def _memory(facts: MachineFacts, here: int) -> Iterator[Finding]:
    if facts.memory_bytes is None:
        return
    needed = DAEMON_BYTES + here * SLOT_BYTES
    value, expected = (
        f"{render_size(facts.memory_bytes)} of memory free",
        f"{render_size(needed)}, plus the size of state",
    )
    enough = facts.memory_bytes >= needed
    remedy = "" if enough else "lower parallelism, or give the machine or container more memory"
    yield Finding("memory", Severity.OK if enough else Severity.WARNING, value, expected, remedy, ("parallelism",))


def _cpus(facts: MachineFacts, here: int) -> Iterator[Finding]:
    value, expected = (
        f"{render_count(facts.cpus, 'processor')} for {render_count(here, 'slot')}",
        "a processor for each",
    )
    enough = here <= 2 * facts.cpus
    remedy = "" if enough else f"parallelism: {2 * facts.cpus}"
    yield Finding("cpus", Severity.OK if enough else Severity.WARNING, value, expected, remedy, ("parallelism",))
