"""`python -m tests.browser.cost`: what five viewers cost a real daemon, in CPU time and in checkpoints.

A pipeline runs for `--seconds` without viewers, then with five pages in a browser, one of each kind that is polled.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

from tests.browser.chromium import open_browser
from tests.support.daemon_process import DaemonProcess
from tests.support.rig import Rig
from tidegate.dev.broker import DevelopmentBroker

ROUTES = ("overview", "graph", "checkpoints", "event-time", "events")


def read_cpu_s(pid: int) -> dict[str, float]:
    """Returns the CPU seconds of each thread of a process, by its number."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(") ")[2].split()
        found[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def measure(daemon: DaemonProcess, seconds: float) -> dict[str, float]:
    """Returns the share of a core that each thread of the daemon uses, and the checkpoints that completed."""
    before, completed, began = read_cpu_s(daemon.pid), daemon.completed_checkpoints(), time.monotonic()
    threading.Event().wait(seconds)
    took = time.monotonic() - began
    after = read_cpu_s(daemon.pid)
    shares = {name: (used - before.get(name, 0.0)) / took for name, used in after.items()}
    return {"total": sum(shares.values()), "checkpoints": daemon.completed_checkpoints() - completed, **shares}


def main() -> None:
    """Prints both measurements and their difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = DevelopmentBroker(Path(directory) / "broker").start()
        try:
            with Rig(broker, Path(directory) / "rig", seed=44, rate=200.0) as rig:
                compare(rig, given.seconds)
        finally:
            broker.kill()


def compare(rig: Rig, seconds: float) -> None:
    """Measures without and with viewers."""
    rig.writer.start()
    daemon = rig.daemon().start()
    daemon.wait_running()
    address = f"http://127.0.0.1:{daemon.wait_for(r'http://127[.]0[.]0[.]1:([0-9]+)').group(1)}"
    daemon.wait_for(r"checkpoint \d+ completed")
    alone = measure(daemon, seconds)
    requests: dict[str, int] = {}
    with open_browser() as browser:
        pages = [browser.new_page(base_url=address) for _ in ROUTES]
        for page, route in zip(pages, ROUTES, strict=True):
            page.on("response", lambda one: requests.update({one.url: requests.get(one.url, 0) + 1}))
            page.goto(f"/#/{route}")
            page.locator("main h1").wait_for()
        pages[0].wait_for_timeout(5_000)
        requests.clear()
        result: dict[str, float] = {}
        measuring = threading.Thread(target=lambda: result.update(measure(daemon, seconds)))
        measuring.start()
        pages[0].wait_for_timeout(seconds * 1000)  # lets the events of the pages in
        measuring.join()
    for name in sorted(result, key=lambda one: -abs(result[one] - alone.get(one, 0.0)))[:10]:
        print(f"{name:20} alone {alone.get(name, 0.0):8.4f}  with viewers {result[name]:8.4f}")
    for url, count in sorted(requests.items(), key=lambda one: -one[1]):
        print(f"{count / seconds:6.2f}/s {url.removeprefix(address)}")


if __name__ == "__main__":
    main()
