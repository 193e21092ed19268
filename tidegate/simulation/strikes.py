"""Faults at a moment, and what people do meanwhile. Each action returns whether it really happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.coordinator.entries import Savepoint
from tidegate.coordinator.ownership import OwnerRecord, OwnershipConflict, derive_newest_record
from tidegate.daemon.restore_point import RestoreOption
from tidegate.errors import TidegateError
from tidegate.ids import TopicPartition
from tidegate.journal.journal import JournalLost
from tidegate.journal.savepoint import METADATA
from tidegate.simulation.daemon import CHECKPOINTS
from tidegate.simulation.disk import ROOT_MODE, Folder
from tidegate.simulation.faults import Fault
from tidegate.simulation.files import Objects
from tidegate.simulation.kernel import EPOCH_MS, VirtualProcess, generator
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import Code
from tidegate.simulation.port import BrokerOutages
from tidegate.simulation.watch import newest_checkpoint
from tidegate.simulation.workload import PIPELINE
from tidegate.storage.checksum import unseal
from tidegate.storage.names import journal_sequence
from tidegate.storage.shared import StorageNotShared

if TYPE_CHECKING:
    from tidegate.simulation.daemon import SimDaemon
    from tidegate.simulation.world import World


STEPS_MS: Final = {"ahead": 3_600_000, "back": -3_600_000, "week": 8 * 24 * 3_600_000}
"""The last one makes brokers forget every idle transactional id."""
OWN_IDS: Final = f"{PIPELINE}."
COPY: Final = "/copy"
NOTHING_THERE: Final = " is empty, but "
"""Text of a refusal whose directory was not the volume, even if the volume is mounted by now."""
TRIED_AGAIN: Final = 0.5
"""Probability that a daemon whose directory has vanished is simply restarted."""
KEPT: Final = 0.5
"""Probability that unsynced data survives a power cut."""


class Striker:
    """Carries out the faults of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._operations = world.operations
        self._random = generator(world.schedule.seed, "strikes")
        self._damaged: dict[str, tuple[bytes, bytes]] = {}
        """Object -> its original and its damaged contents."""
        self._volume: Folder | None = None
        """The volume of the checkpoint directory while it is not mounted."""
        self._covered: Folder | None = None
        """The directory that the volume has covered since it was mounted again."""
        self._forgotten = False
        """Kafka has forgotten transactional ids."""
        self._lost_once = False
        self._moving = False
        """Continue in a new directory after the next savepoint."""
        self._unshared_once = False
        self._actions: dict[str, Callable[[Fault], bool]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "replace": self._replace,
            "rescale": self._rescale,
            "stop": self._stop,
            "hurry": self._hurry,
            "savepoint": self._savepoint,
            "go-back": self._go_back,
            "damage": self._damage,
            "cut": self._cut,
            "partition": self._partition,
            "broker-down": self._broker_down,
            "broker-frozen": self._broker_frozen,
            "broker-slow": self._broker_slow,
            "slots-cut-off": self._slots_cut_off,
            "cluster-replaced": self._cluster_replaced,
            "storage-down": self._storage_down,
            "coordinator-away": self._coordinator_away,
            "leader-away": self._leader_away,
            "marker-delay": self._marker_delay,
            "time-out": self._time_out,
            "taken": self._taken,
            "power-cut": self._power_cut,
            "clock": self._clock,
            "volume-lost": self._volume_lost,
            "unshared": self._unshared,
            "doubled": self._doubled,
            "retention": self._retention,
        }

    def strike(self, fault: Fault) -> None:
        """Carries out a fault whose moment has come. One of a cluster that the world lacks does not happen."""
        world = self._world
        if fault.cluster in world.clusters.names and world.faults.active and self._actions[fault.kind](fault):
            world.faults.happened(fault)
            world.trace.tell(f"FAULT {fault}")

    def _target(self, name: str) -> VirtualProcess | None:
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
        """Starts a second daemon while the first one is frozen for a while, or runs normally."""
        daemon = self._operations.daemon
        if daemon is None or self._operations.starting:
            return False
        if fault.seconds:
            daemon.process.freeze(fault.seconds)
        self._operations.start_later(self._random.uniform(0.0, 0.5))
        return True

    def _rescale(self, fault: Fault) -> bool:
        """Kills the daemon; the next one has another parallelism."""
        daemon = self._operations.daemon
        if daemon is None:
            return False
        self._operations.parallelism = int(fault.target)
        daemon.process.kill("rescaled")
        return True

    def _stop(self, fault: Fault) -> bool:
        """Sends SIGTERM: a final checkpoint, and a new daemon later.

        With target `damage`, a state object is damaged as soon as the old daemon has ended.
        """
        daemon = self._operations.daemon
        if daemon is None:
            return False
        daemon.request_stop()
        if fault.target == "damage":
            daemon.process.at_death.append(self._damage_state)
        return True

    def _hurry(self, fault: Fault) -> bool:
        """Sends SIGTERM and soon a second one. With target `grace`, the time for the final checkpoint ends instead."""
        daemon = self._operations.daemon
        if daemon is None:
            return False
        daemon.request_stop()
        soon = daemon.end_grace if fault.target == "grace" else daemon.request_end_now
        self._world.kernel.at(fault.seconds, lambda: soon() if daemon.process.alive else None)
        return True

    def _savepoint(self, fault: Fault) -> bool:
        """Requests a savepoint.

        With target `moved`, the pipeline continues from it at once in a new checkpoint directory.
        """
        daemon = self._operations.daemon
        if daemon is None:
            return False
        self._moving = self._moving or fault.target == "moved"
        daemon.request_savepoint()
        return True

    def on_savepoint(self) -> None:
        """Notes that a savepoint is finished."""
        if self._moving and self._world.faults.active and self._volume is None and self._restart(newest=True):
            self._moving = False
            self._damaged.clear()
            self._world.machines.disk.mount(Path(self._operations.directory), Folder(self._world.kernel.now, ROOT_MODE))
            self._world.reach.note("continued from a savepoint with a new directory")

    def _go_back(self, _fault: Fault) -> bool:
        """Restores a savepoint or the oldest retained checkpoint."""
        return self._restart(newest=False)

    def _restart(self, *, newest: bool) -> bool:
        """Kills the daemon and restarts it from the newest savepoint, from any savepoint, or from a checkpoint."""
        daemon, workload = self._operations.daemon, self._world.schedule.workload
        if daemon is None or self._operations.going_back is not None or workload.bounded or not workload.exactly_once:
            return False
        if sum(one.process.alive for one in self._operations.daemons) > 1:
            return False  # the other daemon would go on as if nothing had been requested
        if self._operations.savepoints:
            target = self._operations.savepoints[-1] if newest else self._random.choice(self._operations.savepoints)
            body = unseal(METADATA, self._world.machines.files[f"{target}/{METADATA}"])
            savepoint = msgspec.json.decode(body, type=Savepoint)
            origin, checkpoint = f"savepoint {savepoint.token}", savepoint.checkpoint
        else:
            # Rows in flight are before the positions but not yet in the output; the oracle requires a clean cut.
            whole = [one for one in daemon.retained if not any(state.in_flight for state in one.states)]
            if not whole:
                return False
            checkpoint = whole[0]
            target = str(checkpoint.id)
            origin = f"checkpoint {target}"
        if not newest and origin == self._operations.origin:
            return False  # already in the journal: a repeated request, by a supervisor for instance, has no effect
        self._operations.go_back(target, origin, checkpoint)
        daemon.process.kill(f"to go back to {origin}")
        return True

    def _damage(self, fault: Fault) -> bool:
        """Flips one bit of a stored object, usually of the newest one."""
        return self._damage_one(f"{fault.target}/", 0.6)

    def _damage_state(self) -> None:
        self._damage_one("state/")

    def _damage_one(self, prefix: str, newest: float = 1.0) -> bool:
        """Damages the newest object with probability `newest`, otherwise any object."""
        names = sorted(name for name in self._operations.objects if name.startswith(prefix))
        if not names:
            return False
        name = names[-1] if self._random.random() < newest else self._random.choice(names)
        right = self._operations.objects[name]
        place = self._random.randrange(len(right))
        wrong = right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :]
        self._operations.objects[name] = wrong
        self._damaged[name] = (self._damaged.get(name, (right, b""))[0], wrong)
        self._world.trace.tell(f"{name} is damaged")
        return True

    def repair(self, error: TidegateError) -> bool:
        """Repairs what an operator can repair according to the error.

        Returns whether the error reports something that is or was wrong.
        """
        world = self._world
        if world.clusters.replaced and "Kafka cluster" in error.message:
            world.reach.note("refused: a cluster behind the address of another one")
            return True
        if isinstance(error, StorageNotShared) and self._unshared_once:
            world.machines.unshared.clear()
            world.reach.note("refused: a slot with another directory")
            return True
        if isinstance(error, OwnershipConflict) and NOTHING_THERE not in error.message and self._uncover():
            return True
        if self._volume is not None or (self._lost_once and isinstance(error, OwnershipConflict | JournalLost)):
            world.reach.note(f"refused without its directory: {error.code}")
            if not isinstance(error, JournalLost) or self._random.random() < TRIED_AGAIN:
                self._mount()  # unless it has been mounted meanwhile
            return True
        return self._put_back(error.message)

    def end(self) -> None:
        """Ends the faults and mounts the volume again.

        Processes that went on without the volume are killed first.
        """
        world = self._world
        self._put_clusters_back()
        if world.machines.unshared or self._volume is not None:
            self._kill_all("the directory is put right")
            world.machines.unshared.clear()
        self._mount()

    def _mount(self) -> None:
        if self._volume is None:
            return
        self._covered = self._world.machines.disk.mount(Path(CHECKPOINTS), self._volume)
        self._volume = None
        self._world.trace.tell("the volume is mounted again")

    def _uncover(self) -> bool:
        """Mounts the directory that the volume covers, if the volume is behind Kafka's record.

        A daemon then went on without the volume, from an entry that the daemon had just written when the volume
        vanished. The directory with that entry is complete.
        """
        world = self._world
        if (
            self._covered is None
            or self._operations.daemon is not None
            or not any(Objects(world.machines.disk, CHECKPOINTS))
        ):
            return False
        self._covered = world.machines.disk.mount(Path(CHECKPOINTS), self._covered)
        world.reach.note("gone on without the volume")
        world.trace.tell("the directory under the volume is taken again")
        return True

    def _put_back(self, message: str) -> bool:
        """Restores damaged objects from a backup. Returns whether the message names a file that is or was damaged."""
        for name, (right, wrong) in self._damaged.items():
            if self._operations.objects.get(name) == wrong:
                self._operations.objects[name] = right
                self._world.trace.tell(f"{name} is put back")
        return any(name in message for name in self._damaged)

    def _cut(self, fault: Fault) -> bool:
        """Breaks the connections between two processes."""
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
            self._outages(fault).cut_off[first.name] = self._world.kernel.now + fault.seconds
            return True
        if second is None:
            return False
        self._world.network.partition(first.name, second.name, fault.seconds)
        return True

    def _broker_down(self, fault: Fault) -> bool:
        outages = self._outages(fault)
        outages.away = max(outages.away, self._world.kernel.now + fault.seconds)
        return True

    def _broker_frozen(self, fault: Fault) -> bool:
        """Stops a cluster for a while: it accepts requests and answers them when it continues."""
        outages = self._outages(fault)
        outages.frozen = max(outages.frozen, self._world.kernel.now + fault.seconds)
        return True

    def _broker_slow(self, fault: Fault) -> bool:
        """Makes a cluster answer every request late."""
        outages = self._outages(fault)
        outages.slow = max(outages.slow, self._world.kernel.now + fault.seconds)
        return True

    def _slots_cut_off(self, fault: Fault) -> bool:
        """Cuts all slots off from a cluster that the daemon reaches."""
        outages = self._outages(fault)
        outages.slots_cut_off = max(outages.slots_cut_off, self._world.kernel.now + fault.seconds)
        return True

    def _cluster_replaced(self, fault: Fault) -> bool:
        """Puts another cluster behind the address of one, while nothing of the pipeline runs.

        A daemon that starts must refuse. The cluster is put back when it has, or after the time of the fault.
        """
        world, daemon = self._world, self._operations.daemon
        if daemon is None or not daemon.journal.retained or self._is_volume_in_doubt or world.clusters.replaced:
            return False
        self._kill_all("its cluster is replaced")
        world.clusters.replace(fault.cluster)
        world.kernel.at(fault.seconds, self._put_clusters_back)
        return True

    def _put_clusters_back(self) -> None:
        """Kills what may have met the other cluster."""
        if self._world.clusters.replaced:
            self._kill_all("its cluster is back")
            self._world.clusters.put_back()
            self._world.trace.tell("the cluster is back")

    @property
    def _is_volume_in_doubt(self) -> bool:
        """True while only Kafka knows whether a directory is that of the pipeline."""
        return self._volume is not None or self._lost_once or self._operations.directory != CHECKPOINTS

    def _kill_all(self, why: str) -> None:
        for process in [process for process in self._world.kernel.processes if process.alive]:
            process.kill(why)

    def _outages(self, fault: Fault) -> BrokerOutages:
        return self._world.clusters.outages[fault.cluster]

    def _broker(self, fault: Fault) -> ModelBroker:
        return self._world.clusters.broker(fault.cluster)

    def _storage_down(self, fault: Fault) -> bool:
        outage = self._world.storage_outage
        outage.away = max(outage.away, self._world.kernel.now + fault.seconds)
        return True

    def _coordinator_away(self, fault: Fault) -> bool:
        code = Code.COORDINATOR_LOAD_IN_PROGRESS if fault.target == "loading" else Code.NOT_COORDINATOR
        self._broker(fault).coordinator_away(self._now_ms(), self._until_ms(fault), code)
        return True

    def _leader_away(self, fault: Fault) -> bool:
        topic, number = fault.target.split("/")
        broker, there = self._world.clusters.at(TopicPartition(topic, int(number)))
        broker.leader_away(self._now_ms(), there, self._until_ms(fault))
        return True

    def _marker_delay(self, fault: Fault) -> bool:
        self._broker(fault).marker_delay_ms = int(fault.seconds * 1000)
        return True

    def _time_out(self, fault: Fault) -> bool:
        """Makes the broker abort the pipeline's oldest open transaction before its timeout, prepared or not."""
        return self._broker(fault).time_out(self._now_ms(), OWN_IDS) is not None

    def _taken(self, fault: Fault) -> bool:
        """Uses the pipeline's transactional ids from another client.

        Nothing stays open, but epochs increase: the producer that committed is fenced (ADR 5).
        """
        if self._broker(fault).count_lost_markers(self._now_ms()):
            return False  # if the coordinator's state is lost as well, this needs a person
        return bool(self._broker(fault).take_ids(self._now_ms(), OWN_IDS))

    def _power_cut(self, _fault: Fault) -> bool:
        """Cuts the power of everything except the brokers. Data that is not synced may be lost."""
        alive = [process for process in self._world.kernel.processes if process.alive]
        for process in alive:
            process.kill("the power is cut")
        self._world.machines.disk.cut_power(lambda: self._random.random() < KEPT)
        return bool(alive)

    def _volume_lost(self, _fault: Fault) -> bool:
        """Unmounts the volume of the checkpoint directory. An empty, usable directory remains."""
        world = self._world
        if self._volume is not None or self._operations.directory != CHECKPOINTS or self._record() is None:
            return False
        if world.clusters.replaced:
            return False
        if any(journal_sequence(name) is not None for name in self._operations.objects):
            self._lost_once = True
            self._volume = world.machines.disk.mount(Path(CHECKPOINTS), Folder(world.kernel.now, ROOT_MODE))
            return True
        return False  # the volume is still empty

    def _retention(self, _fault: Fault) -> bool:
        """Removes everything committed in one input partition, whether or not it has been read."""
        world = self._world
        place = self._random.choice(world.feed.first_places)
        broker, there = world.clusters.at(place)
        stable = broker.offsets(self._now_ms(), there).stable
        broker.delete_records(self._now_ms(), there, stable)
        return world.account.positions.get(place, 0) < stable

    def _unshared(self, fault: Fault) -> bool:
        """Leaves the volume of one machine unmounted: a slot that starts there has a directory of its own."""
        self._world.machines.unshared.add(fault.target)
        self._unshared_once = True
        return True

    def _doubled(self, fault: Fault) -> bool:
        """Copies the checkpoint directory and starts a daemon with the copy later."""
        world = self._world
        if (
            self._volume is not None
            or world.clusters.replaced
            or self._operations.going_back is not None
            or self._operations.directory != CHECKPOINTS
        ):
            return False
        if self._operations.daemon is None or not self._operations.daemon.journal.retained:
            return False
        copy = f"{COPY}-{len(self._operations.daemons)}"
        restore = self._operations.restore
        world.machines.disk.copy(Path(CHECKPOINTS), Path(copy))
        world.kernel.at(fault.seconds, lambda: self._start_copy(copy, restore))
        return True

    def _start_copy(self, copy: str, restore: RestoreOption | None) -> None:
        """Starts a daemon with the copy.

        It uses the command line from when the copy was made, so a request in it is executed there. It does not start
        within the second by which Kafka's record of the pipeline may be behind (ADR 20).
        """
        world = self._world
        there, here = (newest_checkpoint(Objects(world.machines.disk, place)) for place in (copy, CHECKPOINTS))
        record = self._record()
        told = record is not None and record.checkpoint > there
        moved = here == there and self._operations.daemon is None
        if world.faults.active and self._volume is None and not world.clusters.replaced and (told or moved):
            self._operations.start_copy(copy, restore)

    def goes_on_elsewhere(self, daemon: SimDaemon) -> str:
        """Returns the directory of the daemon that owns the pipeline according to Kafka, or "" if it is the same
        one.
        """
        record = self._record()
        if record is None:
            return ""
        owner = next((one for one in self._operations.daemons if one.token.startswith(record.writer)), daemon)
        return owner.directory if owner.directory != daemon.directory else ""

    def _record(self) -> OwnerRecord | None:
        """Returns the newest ownership record in Kafka."""
        return derive_newest_record(self._world.clusters.group_texts(PIPELINE))

    def _clock(self, fault: Fault) -> bool:
        """Steps a wall clock. Targets are, for example, `daemon ahead`, `slot 0 back` and `brokers week`."""
        whose, _, step = fault.target.rpartition(" ")
        if whose == "brokers":
            if step == "week":
                if self._forgotten or self._broker(fault).count_lost_markers(self._now_ms()):
                    return False  # a marker that is lost for a week and then forgotten needs a person
                self._forgotten = True
            self._broker(fault).step_clock(self._now_ms(), STEPS_MS[step])
            return True
        process = self._target(whose)
        if process is None:
            return False
        process.clock.step(STEPS_MS[step])
        return True

    def _now_ms(self) -> int:
        return self._world.kernel.clock.now_ms()

    def _until_ms(self, fault: Fault) -> int:
        return EPOCH_MS + int((self._world.kernel.now + fault.seconds) * 1000)
