"""Steps in Python with state and timers are exact on 200,000 disordered records, through kills and a restore at another
parallelism: the windows of `windows_in_python.py` equal the built-in ones, and a step for which one record in a hundred
raises has the output, the dead letters and the state that follow from the others.

Executors are processes of their own. A slot is killed in each daemon, and the first daemon; the second one has another
parallelism and another state backend.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from typing_extensions import override

from tests.night.parts import Campaign
from tests.night.story import Night, Result
from tests.support.campaign import Job, Record, deliver_parts, read_rows
from tests.support.daemon_process import DaemonProcess
from tidegate.config.load import read_pipeline
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.demo.verify import read_topic
from tidegate.simulation.shapes.python_steps import CODE
from tidegate.sources.dead_letter_topic import DeadLetterTopic, find_place

ROWS: Final = 200_000
"""In a night of full length."""
RATE: Final = 4_000
"""Rows a second."""
USERS: Final = 2_000
HOT: Final = 20
PARTITIONS: Final = 4
CHUNK_MS: Final = 1_000
ROWS_PER_CHUNK: Final = 200
DELAY_MS: Final = 10_000
DISORDER_MS: Final = 8_000
"""Less than the delay, and chunks are delivered one after the other: no record is late."""
GAP_MS: Final = 10_000
BASE_MS: Final = 1_767_225_600_000
FAILS_OF: Final = 200
"""Two of this many records raise."""
SLOTS: Final = (2, 4)
BACKENDS: Final = ("memory", "rocksdb")
WINDOWS: Final = ("tumbling", "sessions", "minutes")
"""Each is there built in and in Python."""
DEAD: Final = "dead"
NUMBERED: Final = ("numbers", "again", "silent")
OUTPUT_S: Final = 600.0


class Click(msgspec.Struct, frozen=True):
    """A record. `id` is negative for one that closes a partition."""

    id: int
    sku: str
    """The user; the step of the simulation calls it like this."""
    at: int


def run(night: Night) -> Result:
    """See the module."""
    chunks = make_chunks(night.seed, max(20_000, round(ROWS * night.scale)))
    with DevelopmentBroker(night.place / "broker") as broker, _Campaign(night, broker, chunks) as campaign:
        campaign.play()
        campaign.compare()
    return night.close()


def make_chunks(seed: int, rows: int) -> list[list[tuple[int, Click]]]:
    """Returns what is written at once, as partitions and records; the last chunk makes everything before it due."""
    dice = random.Random(f"clicks {seed}")
    chunks: list[list[tuple[int, Click]]] = []
    for number in range(max(10, rows // ROWS_PER_CHUNK)):
        chunk_ms, made = BASE_MS + number * CHUNK_MS, []
        for index in range(ROWS_PER_CHUNK):
            user = dice.randrange(HOT if dice.random() < 0.1 else USERS)
            at = chunk_ms + dice.randrange(CHUNK_MS) - dice.randrange(DISORDER_MS)
            click = Click(number * ROWS_PER_CHUNK + index, f"u{user}", at)
            made.append((dice.randrange(PARTITIONS), click))
        chunks.append(made)
    end_ms = BASE_MS + len(chunks) * CHUNK_MS + 3_600_000
    chunks.append([(partition, Click(-8 * FAILS_OF, f"end{partition}", end_ms)) for partition in range(PARTITIONS)])
    return chunks


_Chunk = list[tuple[int, Click]]


class _Campaign(Campaign[_Chunk]):
    """One pipeline with all steps."""

    def __init__(self, night: Night, broker: DevelopmentBroker, chunks: list[list[tuple[int, Click]]]) -> None:
        middle = len(chunks) // 2
        super().__init__(night, (chunks[:middle], chunks[middle:]), OUTPUT_S)
        self._bootstrap = broker.bootstrap
        self._place = night.place / "job"
        self._place.mkdir()
        for module in (Path(__file__).with_name("windows_in_python.py"), CODE / "visits.py"):
            shutil.copy(module, self._place)
        outputs = [f"{kind}_{name}" for kind in WINDOWS for name in ("builtin", "python")]
        broker.create_topics({"clicks": PARTITIONS, **dict.fromkeys([*outputs, *NUMBERED, "late", DEAD], 3)})
        for what, least in {"slots killed": 2, "daemons killed": 1, "restores": 1}.items():
            night.least(what, least)

    def compare(self) -> None:
        """Waits for all output, ends the daemon and compares."""
        expected = _Expected([click for part in self.parts for chunk in part for _, click in chunk])
        wanted = {"numbers": len(expected.numbered), "again": len(expected.numbered), "silent": len(expected.silent)}
        wanted |= dict.fromkeys(("sessions_builtin", "sessions_python"), len(expected.silent_of_all))

        daemon = self.finish(wanted)
        for kind in WINDOWS:
            self._compare_windows(kind)
        self._compare_numbers(expected)
        self._compare_letters(expected)
        self._compare_state(daemon.pipeline, expected)

    def _compare_windows(self, kind: str) -> None:
        """Compares the results of both steps, record by record in the order of each key."""
        built_in, in_python = (_by_key(read_topic(self._bootstrap, f"{kind}_{name}")) for name in ("builtin", "python"))
        different = [key for key in built_in.keys() | in_python.keys() if built_in.get(key) != in_python.get(key)]
        self.night.count(f"results of {kind}", sum(map(len, in_python.values())))
        self.note(kind, _count(built_in), _count(in_python))
        if different or not built_in:
            first = min(different, key=str, default=b"")
            shown = f"{built_in.get(first, [])[:5]} and {in_python.get(first, [])[:5]}"
            self.night.problem(f"{kind}: {len(different)} of {len(built_in)} keys differ, such as {first!r}: {shown}")

    def _compare_numbers(self, expected: _Expected) -> None:
        rows = {name: [row for part in read_rows(self._bootstrap, name) for row in part] for name in NUMBERED}
        ids = Counter(one.id for one in expected.numbered)
        self.note("numbers", ids, Counter(row["id"] for row in rows["numbers"]))
        self.note("again", ids, Counter(row["id"] for row in rows["again"]))
        silent = Counter((row["sku"], row["last_ms"], row["records"]) for row in rows["silent"])
        self.note("silent", Counter(expected.silent), silent)
        if late := sum(map(len, read_topic(self._bootstrap, "late"))):
            self.night.problem(f"{late} records are late")
        newest = Counter[str]()
        for row in rows["numbers"]:
            if row["number"] != newest[row["sku"]] + 1:
                self.night.problem(f"{row} comes after number {newest[row['sku']]}")
                break
            newest[row["sku"]] += 1

    def _compare_letters(self, expected: _Expected) -> None:
        assert self.daemon is not None
        with DeadLetterTopic(find_place(read_pipeline(self.daemon.pipeline, {}).settings)) as topic:
            letters = list(topic.letters(topic.bounds()))
        failed = Counter[Any]()
        for letter in letters:
            text = letter.value if letter.whole else (letter.row or "").encode()
            row = msgspec.json.decode(text or b"{}")
            failed[row.get("id", row.get("sku"))] += 1
            if letter.kind != "PYTHON_FAILED" or "visits.py" not in letter.message:
                self.night.problem(f"a dead letter is {letter.kind}: {letter.message}")
                break
        self.night.count("rows that raised", sum(isinstance(one, int) for one in failed.elements()))
        self.night.count("timers that raised", sum(isinstance(one, str) for one in failed.elements()))
        self.note("dead letters", Counter([*expected.failed, *expected.users]), failed)

    def _compare_state(self, pipeline: Path, expected: _Expected) -> None:
        """Compares the state of the step, as `tidegate state read` shows it, with the number of its records."""
        command = ["-m", "tidegate", "state", "read", str(pipeline), "visits", "--state", "number", "--format", "json"]
        read = subprocess.run([sys.executable, *command], capture_output=True, check=True, timeout=120)
        found = {row["sku"]: row["value"] for row in map(msgspec.json.decode, read.stdout.splitlines())}
        self.note("state", Counter(one.sku for one in expected.numbered), Counter(found))

    @override
    def make_daemon(self, number: int) -> DaemonProcess:
        slots = SLOTS[number]
        settings = {**SETTINGS, "state": {"backend": BACKENDS[number]}, "parallelism": slots}
        settings["spark"] = {"master": f"local-cluster[2,{slots // 2},1024]"}
        return Job("python-steps", self._bootstrap, self._place, settings).daemon(number, slots)

    @override
    def write(self, chunks: Sequence[_Chunk]) -> None:
        deliver_parts(self._bootstrap, map(self._paced, chunks))

    @override
    def count_rows(self, output: str) -> int:
        return sum(map(len, read_topic(self._bootstrap, output)))

    def _paced(self, chunk: list[tuple[int, Click]]) -> Iterator[Record]:
        for partition, click in chunk:
            yield Record("clicks", partition, None, msgspec.json.encode(click))
        threading.Event().wait(len(chunk) / RATE)


class _Expected:
    """What follows from the input alone."""

    def __init__(self, clicks: Sequence[Click]) -> None:
        fails = {3, 6}
        self.failed = [one.id for one in clicks if one.id % FAILS_OF in fails]
        self.numbered = [one for one in clicks if one.id % FAILS_OF not in fails]
        self.silent = _silences(self.numbered)
        self.silent_of_all = _silences(clicks)
        self.users = {user for user, _, _ in self.silent}
        """Those whose failing timer is due."""


def _silences(clicks: Sequence[Click]) -> list[tuple[str, int, int]]:
    """Returns user, last click and number of clicks of each session that has ended."""
    end_ms = max(one.at for one in clicks)
    times: dict[str, list[int]] = defaultdict(list)
    for one in clicks:
        times[one.sku].append(one.at)
    found = []
    for user, of_user in times.items():
        of_user.sort()
        ends = [index for index, (one, other) in enumerate(pairwise(of_user), 1) if other - one > GAP_MS]
        for begin, end in pairwise([0, *ends, len(of_user)]):
            if of_user[end - 1] < end_ms:
                found.append((user, of_user[end - 1], end - begin))
    return found


def _by_key(partitions: Sequence[Sequence[tuple[bytes | None, bytes]]]) -> dict[bytes | None, list[bytes]]:
    found: dict[bytes | None, list[bytes]] = defaultdict(list)
    for key, value in (record for partition in partitions for record in partition):
        found[key].append(value)
    return dict(found)


def _count(rows: Mapping[bytes | None, Sequence[bytes]]) -> Counter[Any]:
    return Counter((key, value) for key, values in rows.items() for value in values)


def _windows() -> Iterator[dict[str, Any]]:
    """Yields the windows that are there twice, and windows over the results of those."""
    for name in ("builtin", "python"):
        for kind, size, option in (("tumbling", CHUNK_MS * 10, "size"), ("sessions", GAP_MS, "gap")):
            step: dict[str, Any] = {"name": f"{kind}_{name}", "from": "renamed", "key": "user"}
            if name == "builtin":
                step |= {"window": {"tumbling" if option == "size" else "session": f"{size}ms"}}
                step |= {"aggregate": {"clicks": "count(*)"}}
            else:
                columns = {"user": "string", "window_start": "timestamp", "window_end": "timestamp", "clicks": "bigint"}
                step |= {"python": f"windows_in_python:{kind.capitalize()}", "with": {option: f"{size}ms"}}
                step |= {"output": columns}
            yield step
        total = {"windows": "count(*)", "clicks": "sum(clicks)"}
        yield {"name": f"minutes_{name}", "from": f"tumbling_{name}", "key": "user"} | {
            "window": {"tumbling": "1m"},
            "aggregate": total,
        }


SETTINGS: Final[Mapping[str, Any]] = {
    "checkpoints": {"interval": "1s", "unaligned": "always"},
    "dead_letters": {"topic": DEAD, "max_per_minute": "unlimited"},
    "sources": {
        "clicks": {
            "topic": "clicks",
            "format": "json",
            "schema": {"id": "bigint", "sku": "string", "at": "bigint"},
            "start": "earliest",
            "event_time": "at",
            "watermark": {"delay": f"{DELAY_MS}ms", "idle": "never"},
            "bad_records": "dead-letter",
        }
    },
    "steps": [
        {"name": "renamed", "from": "clicks", "select": {"user": "sku"}},
        *_windows(),
        {
            "name": "visits",
            "from": "clicks",
            "key": "sku",
            "python": "visits:Visits",
            "with": {"gap": f"{GAP_MS}ms", "pause": "200ms", "fails_of": FAILS_OF},
            "output": {"id": "bigint", "sku": "string", "number": "bigint"},
            "outputs": {
                "again": {"id": "bigint", "sku": "string"},
                "silent": {"sku": "string", "last_ms": "bigint", "records": "bigint"},
                "behind": {"id": "bigint"},
            },
        },
    ],
    "sinks": {
        **{
            f"to_{kind}_{name}": {"topic": f"{kind}_{name}", "from": f"{kind}_{name}", "format": "json", "key": "user"}
            for kind in WINDOWS
            for name in ("builtin", "python")
        },
        "to_numbers": {"topic": "numbers", "from": "visits", "format": "json", "key": "sku"},
        "to_again": {"topic": "again", "from": "visits.again", "format": "json", "key": "sku"},
        "to_silent": {"topic": "silent", "from": "visits.silent", "format": "json", "key": "sku"},
        "to_late": {"topic": "late", "from": "visits.behind", "format": "json"},
    },
}
