"""A node without a container engine: it runs pods as processes and reports them to the API server as a kubelet does.

Volumes, variables, probes, hooks, grace periods, restarts and service account tokens are real; addresses of pods are
ones of the loopback network. Services have no address: their names lead to the pod by /etc/hosts.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any, Final

from tests.chart.api import Api
from tests.chart.pod import NODE, Pod

logger = logging.getLogger(__name__)

READY: Final = {"type": "Ready", "status": "True", "reason": "Tests", "message": "ready"}
RESOURCES: Final = {"cpu": "64", "memory": "256Gi", "pods": "200"}
PAUSE_S: Final = 0.2


class Node:
    """The one node of a cluster."""

    def __init__(self, api: Api, directory: Path) -> None:
        self._api = api
        self._directory = directory
        self._pods: dict[str, Pod] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="node", daemon=True)

    def start(self) -> None:
        """Register, and run what is scheduled here."""
        self._directory.mkdir()
        node = {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}}}
        self._api.ask("POST", "/api/v1/nodes", node)
        status = {"conditions": [READY], "capacity": RESOURCES, "allocatable": RESOURCES}
        self._api.ask("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, "merge")
        self._api.ask("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}}, "merge")
        self._thread.start()

    def stop(self) -> None:
        """Kill all pods."""
        self._ended.set()
        for pod in self._pods.values():
            pod.kill()

    def find(self, name: str) -> Pod:
        """A pod that has run here, by its name."""
        (found,) = [pod for pod in self._pods.values() if pod.name == name]
        return found

    def logs(self) -> str:
        """Of all pods, for people."""
        return "\n".join(f"--- {pod.name}\n{pod.text()[-5000:]}" for pod in self._pods.values())

    def _watch(self) -> None:
        """By listing: a watch that breaks would have to be resumed, and a list is as quick here."""
        while not self._ended.wait(PAUSE_S):
            try:
                with self._api.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}") as answer:
                    found = json.load(answer)["items"]
            except OSError as error:
                logger.info("the API server does not answer: %s", error)
                continue
            self._look(found)

    def _look(self, found: list[dict[str, Any]]) -> None:
        alive = set()
        for one in found:
            uid = one["metadata"]["uid"]
            alive.add(uid)
            if uid not in self._pods:
                if one["status"].get("phase") in ("Succeeded", "Failed"):
                    continue
                number = len(self._pods) + 1
                self._pods[uid] = Pod(
                    self._api, one, self._directory / uid, f"127.77.{number // 250}.{number % 250 + 1}"
                )
                self._pods[uid].start()
            if one["metadata"].get("deletionTimestamp"):
                self._pods[uid].end(one["metadata"].get("deletionGracePeriodSeconds", 30))
        for uid, pod in self._pods.items():
            if uid not in alive:
                pod.kill()
