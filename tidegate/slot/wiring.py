"""The channels of one slot: the inputs and outputs of its subtasks, local and remote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.ids import SlotIndex, VertexId
from tidegate.plan.graph import Edge, Plan
from tidegate.task.channels import InputChannel, LocalOutput, OutputChannel, RemoteOutput
from tidegate.task.outputs import EdgeOutput


class Wiring:
    """The channels of one slot. Creates all inputs at once, since a subtask writes directly into those of
    its own slot.
    """

    def __init__(
        self,
        plan: Plan,
        slot: SlotIndex,
        make_input: Callable[[int], InputChannel],
        make_remote_output: Callable[[int], RemoteOutput],
    ) -> None:
        """The functions are those of SlotParts."""
        self.remote_inputs: dict[tuple[int, int], InputChannel] = {}
        """By sender and edge."""
        self.remote_outputs: dict[int, dict[int, RemoteOutput]] = {}
        """By receiver and edge."""
        self._plan = plan
        self._slot = int(slot)
        self._make_input = make_input
        self._make_remote_output = make_remote_output
        self._local: dict[int, InputChannel] = {}
        self._inputs = {
            vertex.id: [
                self._open_input(edge, sender) for edge in plan.inputs_of(vertex.id) for sender in self._ends(edge)
            ]
            for vertex in plan.vertices
        }

    def inputs_of(self, vertex: VertexId) -> Sequence[InputChannel]:
        """Returns the channels that lead to the subtask of a vertex, edge by edge, by sender."""
        return self._inputs[vertex]

    def open_output(self, edge: Edge) -> EdgeOutput:
        """Creates the sending ends of an edge."""
        channels: list[OutputChannel] = []
        for receiver in self._ends(edge):
            if receiver == self._slot:
                channels.append(LocalOutput(self._local[edge.index]))
            else:
                output = self._make_remote_output(edge.index)
                self.remote_outputs.setdefault(receiver, {})[edge.index] = output
                channels.append(output)
        return EdgeOutput(edge, channels, self._plan.max_parallelism)

    @property
    def queued(self) -> int:
        """Elements queued in front of subtasks. Safe from any thread."""
        return sum(len(channel) for channels in self._inputs.values() for channel in channels)

    def _ends(self, edge: Edge) -> Sequence[int]:
        """Returns the slots at the other end of an edge."""
        return range(self._plan.parallelism) if edge.keys else [self._slot]

    def _open_input(self, edge: Edge, sender: int) -> InputChannel:
        channel = self._make_input(edge.index)
        if sender == self._slot:
            self._local[edge.index] = channel
        else:
            self.remote_inputs[sender, edge.index] = channel
        return channel
