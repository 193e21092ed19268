"""Starts a Spark session and tests the checkpoint directory in every slot, for `doctor --spark`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate import __version__
from tidegate.checks.findings import Finding, Severity
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.encryption import decide_encryption
from tidegate.config.fields.counts import render_count
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.config.models import PipelineSettings
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, SlotIndex
from tidegate.spark.host import SparkHost
from tidegate.spark.work_directory import WorkDirectory
from tidegate.storage.base import StorageError
from tidegate.storage.open import Opener
from tidegate.storage.shared import REMEDY, Proof, StorageNotShared

_BEFORE_ALL: Final = Attempt(0)
"""Attempts begin at 1, so none uses the name of this test's objects."""
_WANTED: Final = "every slot starts, and sees the files of this machine"


class SeenSlot(msgspec.Struct, frozen=True):
    """The result of one slot."""

    slot: int
    host: str
    version: str
    trouble: str = ""


def try_executors(loaded: LoadedPipeline) -> list[Finding]:
    """Test all slots. Blocks for as long as a start takes."""
    settings = loaded.settings
    work = WorkDirectory()
    host = _make_host(settings, work)
    try:
        host.start(settings.parallelism)
        return judge_executors(_try_everywhere(host, settings), __version__)
    except TidegateError as error:
        return [_problem(error.message)]
    finally:
        host.stop()
        work.remove()


def judge_executors(slots: list[SeenSlot], version: str) -> list[Finding]:
    """Judge the slots: one finding for each kind of trouble, or one if there is none. Pure."""
    troubles = list(dict.fromkeys(slot.trouble for slot in slots if slot.trouble))
    other = sorted({f"{slot.version} on {slot.host}" for slot in slots if slot.version != version})
    if other:
        troubles.append(f"Tidegate {version} here, and {', '.join(other)}: install the same")
    if troubles:
        return [_problem(trouble) for trouble in troubles]
    hosts = sorted({slot.host for slot in slots})
    found = f"{render_count(len(slots), 'slot')} on {', '.join(hosts)}, with the same checkpoint directory"
    return [Finding("executors", Severity.OK, found, _WANTED, place=("spark",))]


def _problem(text: str) -> Finding:
    found, _, resolve = text.replace(f": {REMEDY}", f"; {REMEDY}").partition("; ")
    return Finding("executors", Severity.PROBLEM, found, _WANTED, resolve, ("spark",))


def _make_host(settings: PipelineSettings, work: WorkDirectory) -> SparkHost:
    properties = {name: value for name, value in settings.spark.items() if name != "master"}
    master = settings.spark_master
    return SparkHost(
        f"{settings.name}-doctor",
        master,
        properties,
        work.path,
        settings.runtime.start_timeout_ms / 1000,
        encrypted=decide_encryption(settings.runtime.encryption, master),
    )


def _try_everywhere(host: SparkHost, settings: PipelineSettings) -> list[SeenSlot]:
    opener, address = derive_opener(settings), str(settings.checkpoints.directory)
    proof = Proof(opener(address), _BEFORE_ALL, secrets.token_hex(16), SYSTEM_CLOCK)
    proof.write_daemons()
    try:
        slots = host.collect(make_trial(opener, address, proof.secret), settings.parallelism)
        found = []
        for slot in slots:
            try:
                if not slot.trouble:
                    proof.check(SlotIndex(slot.slot), slot.host)
            except StorageNotShared as unseen:
                slot = msgspec.structs.replace(slot, trouble=unseen.message)  # noqa: PLW2901  the same slot, extended
            found.append(slot)
        return found
    finally:
        proof.remove()


def make_trial(opener: Opener, address: str, secret: str) -> Callable[[int], SeenSlot]:
    """Create the function that each slot runs; it is sent to the executors."""

    def try_slot(slot: int) -> SeenSlot:
        from tidegate import __version__ as version

        name = os.uname().nodename
        try:
            Proof(opener(address), _BEFORE_ALL, secret, SYSTEM_CLOCK).answer(SlotIndex(slot), name)
        except (StorageError, StorageNotShared) as error:
            return SeenSlot(slot, name, version, error.message)
        return SeenSlot(slot, name, version)

    return try_slot
