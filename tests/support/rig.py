"""One pipeline under test: its topics, its load, its daemons, and the independent check of its committed output."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any, Self

import msgspec
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in their __all__

from tests.support import clients
from tests.support.command import refused
from tests.support.daemon_process import DaemonProcess
from tests.support.load import OrderWriter, OutputReader
from tests.support.orders_pipeline import HALVES, OrdersPipeline
from tests.waiting import PATIENCE_S, wait_until
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.journal_state import JournalState
from tidegate.dev.demo.verify import DemoVerdict, Order, read_topic, verify_paid, verify_totals
from tidegate.journal.journal import Journal
from tidegate.slot.copies import PREFIX
from tidegate.storage.local import LocalStorage

PARTITIONS = 4


class Rig:
    """The environment of one test. Names are unique, so several rigs share a broker. `with` cleans up in any case.

    `overrides` are fields of OrdersPipeline. `partitions` is the partition count of each topic.
    """

    def __init__(
        self,
        broker: Any,
        directory: Path,
        *,
        seed: int = 1,
        rate: float = 500.0,
        partitions: int = PARTITIONS,
        **overrides: Any,
    ) -> None:
        unique = uuid.uuid4().hex[:8]
        self.broker = broker
        self.directory = directory
        self.scratch = directory / "scratch"
        """Temporary files of all daemons. Daemons that end by themselves must leave nothing else."""
        self.scratch.mkdir(parents=True)
        self.environ = {"TMPDIR": str(self.scratch)}
        self.seed = seed
        self.pipeline = OrdersPipeline(
            name=f"e2e-{unique}",
            bootstrap=broker.bootstrap,
            directory=directory / "checkpoints",
            prefix=f"e2e-{unique}-",
            **overrides,
        )
        self.topic = {name: self.pipeline.prefix + name for name in ("orders", "paid", "totals")}
        self.halves = [self.pipeline.prefix + name for name in HALVES] if self.pipeline.halves else []
        broker.create_topics(dict.fromkeys([*self.topic.values(), *self.halves], partitions))
        self.writer = OrderWriter(broker.bootstrap, self.topic["orders"], seed, rate)
        self.outputs = OutputReader(broker.bootstrap, [self.topic["paid"], self.topic["totals"]])
        self.daemons: list[DaemonProcess] = []
        print(f"seed {seed}, pipeline {self.pipeline.name}", flush=True)

    def daemon(self, *command: str, **overrides: Any) -> DaemonProcess:
        """Returns a new daemon for this pipeline, not started; `command` replaces `-m tidegate run`."""
        number = len(self.daemons)
        pipeline = msgspec.structs.replace(self.pipeline, **overrides)
        path = pipeline.write(self.directory / f"pipeline-{number}.yaml")
        made = DaemonProcess(path, self.directory / f"daemon-{number}.log", self.environ, command=command)
        made.transactional = pipeline.mode == "exactly-once"
        self.daemons.append(made)
        return made

    def refused(self, *options: object, **overrides: Any) -> str:
        """Returns the output of a `tidegate run` with these options that is refused before slots are started."""
        return refused(self.write("refused.yaml", **overrides), *options, environ=self.environ)

    def write(self, file: str, **overrides: Any) -> Path:
        """Writes a file of the pipeline, or of a variant."""
        return msgspec.structs.replace(self.pipeline, **overrides).write(self.directory / file)

    def running(self, **overrides: Any) -> DaemonProcess:
        """Returns a new daemon that has completed a checkpoint under load."""
        if self.writer.idle:
            self.writer.start()
        if self.outputs.idle:
            self.outputs.start()
        daemon = self.daemon(**overrides).start().wait_running()
        daemon.wait_committed()
        return daemon

    def wait_output(self, timeout_s: float = PATIENCE_S) -> None:
        """Stops the load and waits until a read-committed reader sees every order in the outputs."""
        self.writer.stop()
        self._wait_all(timeout_s)

    def pause(self, timeout_s: float = PATIENCE_S) -> None:
        """Waits for the output as `wait_output` does, but the load can be resumed."""
        self.writer.pause()
        self._wait_all(timeout_s)

    def wait_newer(self, timeout_s: float = PATIENCE_S) -> None:
        """Waits until an order that was written after this call is in the output."""
        before = sum(order.status == "paid" for order in self.writer.orders)
        wait_until(lambda: self.outputs.count(self.topic["paid"]) > before, "a newer order in the output", timeout_s)

    def grow(self, partitions: int) -> None:
        """Increases the input to `partitions` partitions. This moves keys; a pause before it preserves their order."""
        self.pause()
        admin = clients.admin({"bootstrap.servers": self.broker.bootstrap})
        for future in admin.create_partitions([NewPartitions(self.topic["orders"], partitions)]).values():
            future.result(30)
        self.writer.resume()

    def _wait_all(self, timeout_s: float) -> None:
        orders = self.writer.orders
        paid = sum(order.status == "paid" for order in orders)
        wanted = {self.topic["paid"]: paid, **({self.topic["totals"]: len(orders)} if self.pipeline.keyed else {})}

        def complete() -> bool:
            if all(self.outputs.count(topic) >= count for topic, count in wanted.items()):
                return True
            for daemon in self.daemons[-1:]:
                daemon.assert_alive()
            return False

        wait_until(complete, f"{wanted} orders in the outputs", timeout_s)

    def finish(self, daemon: DaemonProcess) -> None:
        """Waits for all output and checks that SIGTERM leads to exit code 0 and both outputs are exact."""
        self.wait_output()
        code = daemon.terminate()
        assert code == 0, f"SIGTERM: exit code {code}\n{daemon.text()[-4000:]}"
        self.assert_clean()
        self.assert_exact()

    def assert_clean(self) -> None:
        """Asserts that no daemon has left temporary files, including killed ones (X36). Copies of state remain."""
        left = sorted(path.name for path in self.scratch.iterdir() if not path.name.startswith(PREFIX))
        assert left == [], left

    def verdicts(self) -> list[DemoVerdict]:
        """Returns the results of the independent check of the outputs; ends the load unless it is paused."""
        orders = self.writer.orders if self.writer.paused else self.writer.stop()
        found = [verify_paid(orders, read_topic(self.broker.bootstrap, self.topic["paid"]))]
        if self.pipeline.keyed:
            found.append(verify_totals(orders, read_topic(self.broker.bootstrap, self.topic["totals"])))
        for remainder, topic in enumerate(self.halves):
            half = [_only_in(order, remainder) for order in orders]
            found.append(verify_paid(half, read_topic(self.broker.bootstrap, topic)))
        return found

    def assert_exact_so_far(self) -> None:
        """Asserts exact outputs as `assert_exact` does; the load continues afterwards."""
        self.pause()
        self.assert_exact()
        self.writer.resume()

    def assert_nothing_doubled(self) -> None:
        """Asserts that no committed output is duplicated, wrong or out of order.

        The daemon need not run; missing output does not count as lost.
        """
        self.writer.pause()
        for verdict in self.verdicts():
            assert verdict.found > 0, "an empty history proves nothing"
            assert (verdict.doubled, verdict.wrong, verdict.out_of_order) == (0, 0, 0), verdict.examples
        self.writer.resume()

    def assert_exact(self) -> None:
        """Asserts that nothing is lost, duplicated, wrong or out of order."""
        verdicts = self.verdicts()
        assert all(verdict.expected > 0 for verdict in verdicts), "an empty history proves nothing"
        assert all(verdict.exact for verdict in verdicts), [msgspec.to_builtins(verdict) for verdict in verdicts]

    def close(self) -> None:
        """Ends all daemons and threads."""
        self.outputs.close()
        for daemon in self.daemons:
            daemon.destroy()
        self.writer.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def restored_checkpoint(text: str) -> int:
    """Returns the checkpoint that a daemon's first attempt restored; fails if it restored none."""
    match = re.search(r"attempt \d+ restores checkpoint (\d+)", text)
    assert match is not None, text[-3000:]
    return int(match.group(1))


def read_journal(directory: Path) -> JournalState:
    """Returns the journal of a checkpoint directory without taking it over."""
    return Journal(LocalStorage(str(directory)), Writer("reader", "reader", 0), retained=3, id_reserve=1).read()


def _only_in(order: Order, remainder: int) -> Order:
    """Makes an order of the other half count as unpaid."""
    mine = order.id % len(HALVES) == remainder
    return order if mine else msgspec.structs.replace(order, status="elsewhere")
