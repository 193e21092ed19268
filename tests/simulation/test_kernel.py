"""Virtual time, virtual threads, processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from tidegate.simulation.kernel import START_S, Kernel, Signal, Trace
from tidegate.simulation.loop import VirtualLoop


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel("test", Trace())
    yield made
    made.close()


def test_events_come_in_the_order_of_their_moments(kernel: Kernel) -> None:
    seen: list[str] = []
    kernel.at(2.0, lambda: seen.append("late"))
    kernel.at(1.0, lambda: seen.append("early"))
    kernel.at(1.0, lambda: seen.append("early, planned later"))
    kernel.run(10.0)
    assert seen == ["early", "early, planned later", "late"]


def test_blocking_work_lets_the_time_pass_and_others_run(kernel: Kernel) -> None:
    seen: list[tuple[str, float]] = []
    process = kernel.process("slot", "p")

    def work(name: str, pause_s: float) -> None:
        for _ in range(2):
            kernel.block(pause_s)
            seen.append((name, kernel.now - START_S))

    kernel.spawn(process, "a", lambda: work("a", 1.0))
    kernel.spawn(process, "b", lambda: work("b", 0.75))
    kernel.run(10.0)
    assert seen == [("b", 0.75), ("a", 1.0), ("b", 1.5), ("a", 2.0)]


def test_a_killed_process_does_nothing_any_more(kernel: Kernel) -> None:
    seen: list[str] = []
    process = kernel.process("slot", "p")

    def work() -> None:
        try:
            kernel.block(5.0)
            seen.append("not reached")
        finally:
            seen.append("unwound")

    kernel.spawn(process, "a", work)
    kernel.at(2.0, lambda: seen.append("not reached either"), process)
    kernel.at(1.0, lambda: process.kill("test"))
    kernel.run(10.0)
    assert seen == ["unwound"]


def test_a_frozen_process_sees_its_events_late(kernel: Kernel) -> None:
    seen: list[float] = []
    process = kernel.process("slot", "p")
    kernel.at(1.0, lambda: seen.append(kernel.now - START_S), process)

    def work() -> None:
        kernel.block(1.5)
        seen.append(kernel.now - START_S)

    kernel.spawn(process, "a", work)
    process.freeze(4.0)
    kernel.run(10.0)
    assert seen == [4.0, 5.5]


def test_a_signal_wakes_and_a_wait_ends_with_its_time(kernel: Kernel) -> None:
    process = kernel.process("slot", "p")
    signal = Signal(kernel)
    seen: list[tuple[bool, float]] = []
    for timeout_s in (1.0, 5.0):
        kernel.spawn(process, "a", lambda t=timeout_s: seen.append((kernel.wait(signal, t), kernel.now - START_S)))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    kernel.at(2.0, signal.set)
    kernel.run(10.0)
    assert seen == [(False, 1.0), (True, 2.0)]


def test_coroutines_run_on_the_virtual_loop(kernel: Kernel) -> None:
    process = kernel.process("daemon", "d")
    seen: list[object] = []
    loop = VirtualLoop(process, lambda error, message: seen.append((error, message)))  # type: ignore[abstract]  # it has what is used

    async def main() -> None:
        seen.append(await asyncio.to_thread(lambda: (kernel.block(1.0), "answer")[1]))  # type: ignore[func-returns-value]  # two steps in one line
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 2.0)
        except TimeoutError:
            seen.append(kernel.now - START_S)

    loop.create_task(main())
    kernel.run(10.0)
    loop.dispose()
    assert seen == ["answer", 3.0]


def test_a_call_that_waits_for_its_thread_can_be_cancelled_and_one_that_has_begun_cannot(kernel: Kernel) -> None:
    """As in a pool of threads: the end of an attempt relies on it."""
    loop = VirtualLoop(kernel.process("daemon", "d"), lambda error, message: None)  # type: ignore[abstract]  # it has what is used
    done: list[str] = []

    def first() -> None:
        kernel.block(1.0)
        done.append("first")

    async def main() -> None:
        calls = [loop.run_in_executor("thread", call) for call in (first, lambda: done.append("second"))]
        await asyncio.sleep(0.5)
        for call in calls:
            call.cancel()

    loop.create_task(main())
    kernel.run(10.0)
    loop.dispose()
    assert done == ["first"]


def test_tasks_that_are_made_on_the_way_out_are_closed_too(kernel: Kernel) -> None:
    """Also after an event loop of asyncio's own has run and ended in this thread."""
    asyncio.run(asyncio.sleep(0))
    process = kernel.process("daemon", "d")
    loop = VirtualLoop(process, lambda error, message: None)  # type: ignore[abstract]  # it has what is used
    begun: list[str] = []

    async def leave(name: str) -> None:
        begun.append(name)

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(leave("a"), leave("b"))

    loop.create_task(main())
    kernel.run(1.0)
    loop.dispose()
    assert not begun  # and no warning about a coroutine that was never awaited


def test_what_a_virtual_thread_raises_ends_the_run(kernel: Kernel) -> None:
    def work() -> None:
        raise ValueError("a bug")

    kernel.spawn(kernel.process("slot", "p"), "a", work)
    with pytest.raises(ValueError, match="a bug"):
        kernel.run(1.0)


def test_what_is_found_where_it_cannot_be_raised_ends_the_run(kernel: Kernel) -> None:
    """As asyncio's handler of exceptions does, which may be called while an object is removed."""
    seen: list[str] = []

    def find() -> None:
        kernel.failure = ValueError("a bug")

    kernel.at(1.0, find)
    kernel.at(2.0, lambda: seen.append("after it"))
    with pytest.raises(ValueError, match="a bug"):
        kernel.run(10.0)
    assert not seen


def test_the_end_unwinds_all_though_one_raises_on_its_way_out(kernel: Kernel) -> None:
    unwound: list[str] = []
    process = kernel.process("slot", "p")

    def work(name: str) -> None:
        try:
            kernel.block(5.0)
        finally:
            unwound.append(name)
            raise ValueError("on the way out")

    for name in ("a", "b"):
        kernel.spawn(process, name, partial(work, name))
    kernel.run(1.0)
    kernel.close()
    assert unwound == ["a", "b"]


def test_a_program_that_goes_in_circles_is_no_endless_run(kernel: Kernel) -> None:
    def again() -> None:
        kernel.at(0.0, again)

    again()
    with pytest.raises(RuntimeError, match="an endless loop plans each event for now"):
        kernel.run(1.0)
