"""Faults at a moment, and what people do meanwhile. Each says whether it really happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.coordinator.savepoint import METADATA, Savepoint
from tidegate.coordinator.types import StateKind
from tidegate.daemon.choosing import RestoreOption
from tidegate.ids import TopicPartition
from tidegate.simulation.chance import generator
from tidegate.simulation.faults import Fault
from tidegate.simulation.kernel import EPOCH_MS, Process
from tidegate.simulation.model_broker.codes import Code
from tidegate.storage.checksum import unseal

if TYPE_CHECKING:
    from tidegate.simulation.world import World


KEPT: Final = 0.5
"""So often a power cut leaves what was not synced."""


class Striker:
    """Carries them out in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = generator(world.schedule.seed, "strikes")
        self._damaged: dict[str, tuple[bytes, bytes]] = {}
        """Object -> what it was, what it is."""
        self._actions: dict[str, Callable[[Fault], bool]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "replace": self._replace,
            "rescale": self._rescale,
            "stop": self._stop,
            "savepoint": self._savepoint,
            "go-back": self._go_back,
            "damage": self._damage,
            "cut": self._cut,
            "partition": self._partition,
            "broker-down": self._broker_down,
            "storage-down": self._storage_down,
            "coordinator-away": self._coordinator_away,
            "leader-away": self._leader_away,
            "marker-delay": self._marker_delay,
            "time-out": self._time_out,
            "power-cut": self._power_cut,
        }

    def strike(self, fault: Fault) -> None:
        """Its moment has come."""
        world = self._world
        if world.faults.active and self._actions[fault.kind](fault):
            world.faults.happened(fault)
            world.trace.tell(f"FAULT {fault}")

    def _target(self, name: str) -> Process | None:
        for process in reversed(self._world.kernel.processes):
            if process.alive and process.alias == name:
                return process
        return None

    def _kill(self, fault: Fault) -> bool:
        process = self._target(fault.target)
        if process is None:
            return False
        if process.kind == "daemon":
            self._world.faults.away_s = max(self._world.faults.away_s, fault.seconds)
        process.kill("fault")
        return True

    def _freeze(self, fault: Fault) -> bool:
        process = self._target(fault.target)
        if process is None:
            return False
        process.freeze(fault.seconds)
        return True

    def _replace(self, fault: Fault) -> bool:
        """A second daemon starts while the first one is there, frozen for a while or in full health."""
        daemon = self._world.daemon
        if daemon is None or self._world.starting:
            return False
        if fault.seconds:
            daemon.process.freeze(fault.seconds)
        self._world.start_daemon_in(self._random.uniform(0.0, 0.5))
        return True

    def _rescale(self, fault: Fault) -> bool:
        """Kill the daemon; the next one has another parallelism."""
        daemon = self._world.daemon
        if daemon is None:
            return False
        self._world.parallelism = int(fault.target)
        daemon.process.kill("rescaled")
        return True

    def _stop(self, _fault: Fault) -> bool:
        """SIGTERM: a final checkpoint, and a new daemon later on."""
        daemon = self._world.daemon
        if daemon is None:
            return False
        daemon.request_stop()
        return True

    def _savepoint(self, _fault: Fault) -> bool:
        """Somebody asks for a savepoint."""
        daemon = self._world.daemon
        if daemon is None:
            return False
        daemon.request_savepoint()
        return True

    def _go_back(self, _fault: Fault) -> bool:
        """The daemon is killed and started again from a savepoint, or from the oldest checkpoint that is retained."""
        daemon, workload = self._world.daemon, self._world.schedule.workload
        if daemon is None or self._world.going_back is not None or workload.bounded or not workload.exactly_once:
            return False
        if sum(one.process.alive for one in self._world.daemons) > 1:
            return False  # the other one would go on as if nothing had been asked for
        if self._world.savepoints:
            target = self._random.choice(self._world.savepoints)
            body = unseal(METADATA, self._world.files[f"{target}/{METADATA}"])
            savepoint = msgspec.json.decode(body, type=Savepoint)
            origin, checkpoint = f"savepoint {savepoint.token}", savepoint.checkpoint
        else:
            # Rows in flight are before the positions and yet to come out: the oracle asks for a clean cut.
            whole = [one for one in daemon.retained if all(state.kind is StateKind.OPERATOR for state in one.states)]
            if not whole:
                return False
            checkpoint = whole[0]
            target = str(checkpoint.id)
            origin = f"checkpoint {target}"
        self._world.going_back = (origin, self._world.processed(checkpoint))
        self._world.restore = RestoreOption(target, repeat_output=True)
        daemon.process.kill(f"to go back to {origin}")
        return True

    def _damage(self, fault: Fault) -> bool:
        """One bit of a stored object is wrong; mostly of the newest one."""
        names = sorted(name for name in self._world.objects if name.startswith(f"{fault.target}/"))
        if not names:
            return False
        name = names[-1] if self._random.random() < 0.6 else self._random.choice(names)
        right = self._world.objects[name]
        place = self._random.randrange(len(right))
        wrong = right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :]
        self._world.objects[name] = wrong
        self._damaged[name] = (self._damaged.get(name, (right, b""))[0], wrong)
        self._world.trace.tell(f"{name} is damaged")
        return True

    def repair(self, message: str) -> bool:
        """Put damaged objects back, from a backup; whether the message names a file that is or was damaged."""
        for name, (right, wrong) in self._damaged.items():
            if self._world.objects.get(name) == wrong:
                self._world.objects[name] = right
                self._world.trace.tell(f"{name} is put back")
        return any(name in message for name in self._damaged)

    def _cut(self, fault: Fault) -> bool:
        """Break the connections between two processes."""
        one, other = (self._target(name) for name in fault.target.split("/"))
        if one is None or other is None:
            return False
        ends = self._world.network.connections(one.name, other.name)
        for end in ends:
            end.break_off()
        return bool(ends)

    def _partition(self, fault: Fault) -> bool:
        one, other = fault.target.split("/")
        first, second = self._target(one), self._target(other)
        if first is None:
            return False
        if other == "broker":
            self._world.outages.cut_off[first.name] = self._world.kernel.now + fault.seconds
            return True
        if second is None:
            return False
        self._world.network.partition(first.name, second.name, fault.seconds)
        return True

    def _broker_down(self, fault: Fault) -> bool:
        self._world.outages.broker = max(self._world.outages.broker, self._world.kernel.now + fault.seconds)
        return True

    def _storage_down(self, fault: Fault) -> bool:
        self._world.outages.storage = max(self._world.outages.storage, self._world.kernel.now + fault.seconds)
        return True

    def _coordinator_away(self, fault: Fault) -> bool:
        code = Code.COORDINATOR_LOAD_IN_PROGRESS if fault.target == "loading" else Code.NOT_COORDINATOR
        self._world.broker.coordinator_away(self._now_ms(), self._until_ms(fault), code)
        return True

    def _leader_away(self, fault: Fault) -> bool:
        topic, number = fault.target.split("/")
        self._world.broker.leader_away(self._now_ms(), TopicPartition(topic, int(number)), self._until_ms(fault))
        return True

    def _marker_delay(self, fault: Fault) -> bool:
        self._world.broker.marker_delay_ms = int(fault.seconds * 1000)
        return True

    def _time_out(self, _fault: Fault) -> bool:
        """The broker aborts the pipeline's oldest open transaction before its time, prepared or not."""
        return self._world.broker.time_out(self._now_ms(), "simulated.") is not None

    def _power_cut(self, _fault: Fault) -> bool:
        """Of everything but the brokers: what is not synced may be lost."""
        alive = [process for process in self._world.kernel.processes if process.alive]
        for process in alive:
            process.kill("the power is cut")
        self._world.disk.cut_power(lambda: self._random.random() < KEPT)
        return bool(alive)

    def _now_ms(self) -> int:
        return self._world.kernel.clock.now_ms()

    def _until_ms(self, fault: Fault) -> int:
        return EPOCH_MS + int((self._world.kernel.now + fault.seconds) * 1000)
