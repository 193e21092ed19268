"""A real Kubernetes control plane on loopback, for one session of tests: etcd, API server, controllers, scheduler.

There is no container engine: `node.py` runs the pods as processes of this machine. Not covered therefore: images, the
network of pods, DNS, NetworkPolicies.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Final, Self

from tests.chart.api import TOKEN, Api, free_port
from tests.chart.node import Node
from tests.chart.programs import program
from tests.waiting import wait_until

STOP_S: Final = 5.0
AUDIT: Final = """apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - {level: Metadata, omitStages: [RequestReceived], userGroups: ["system:serviceaccounts"]}
  - {level: None}
"""
CONTROLLERS: Final = "*,-node-lifecycle-controller"
"""Without the one that calls a node dead that has no kubelet."""


class Cluster:
    """See the module. All processes are ended with the block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.api = Api(free_port(), directory)
        self.kubeconfig = directory / "kubeconfig"
        self.audit_log = directory / "audit.log"
        self.node = Node(self.api, directory / "node")
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def kubectl(self, *arguments: object, check: bool = True, given: str | None = None) -> str:
        """Its output."""
        return self._run("kubectl", *arguments, check=check, given=given).stdout

    def helm(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm against this cluster."""
        return self._run("helm", *arguments, check=check)

    def get(self, namespace: str, kind: str, *arguments: object) -> list[dict[str, Any]]:
        """Objects of a kind."""
        found = json.loads(self.kubectl("-n", namespace, "get", kind, "-o", "json", *arguments))
        return list(found["items"]) if "items" in found else [found]

    def pods(self, namespace: str, component: str) -> list[dict[str, Any]]:
        """Of one part of the chart, those that are going included."""
        return self.get(namespace, "pods", "-l", f"app.kubernetes.io/component={component}")

    def create_namespace(self, name: str) -> None:
        """With the admission of `restricted`, and its default service account."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        wait_until(lambda: bool(self.get(name, "serviceaccounts")), f"namespace {name} has its service account")

    def create_volume(self, name: str, mode: str) -> Path:
        """A persistent volume that the next claim gets; its directory."""
        path = self.directory / "volumes" / name
        path.mkdir(parents=True)
        spec = {"capacity": {"storage": "10Gi"}, "accessModes": [mode], "hostPath": {"path": str(path)}}
        self.api.ask("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        return path

    def audited(self, user: str) -> list[dict[str, Any]]:
        """What an account has asked the API server for, by the audit log."""
        lines = self.audit_log.read_text(encoding="utf-8").splitlines() if self.audit_log.exists() else []
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["user"]["username"] == user]

    def _run(
        self, name: str, *arguments: object, check: bool, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HELM_CACHE_HOME": str(self.directory / "helm")}
        command = [program(name), *map(str, arguments)]
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environ, input=given, timeout=900, check=False
        )
        assert not check or ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}\n{self.node.logs()[-6000:]}"
        return ran

    def _start(self) -> None:
        directory, client, peer = self.directory, free_port(), free_port()
        subprocess.run(["openssl", "genrsa", "-out", directory / "sa.key", "2048"], check=True, capture_output=True)
        (directory / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n', encoding="ascii")
        (directory / "audit.yaml").write_text(AUDIT, encoding="ascii")
        etcd, url = f"http://127.0.0.1:{client}", f"https://127.0.0.1:{self.api.port}"
        self._spawn(
            *("etcd", "--data-dir", directory / "etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}", "--unsafe-no-fsync", "--log-level", "warn"),
        )
        self._spawn(
            *("kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1"),
            *("--advertise-address", "127.0.0.1", "--secure-port", self.api.port, "--cert-dir", directory / "certs"),
            *("--service-account-key-file", directory / "sa.key"),
            *("--service-account-signing-key-file", directory / "sa.key"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-cluster-ip-range", "10.96.0.0/24", "--authorization-mode", "RBAC"),
            *("--token-auth-file", directory / "tokens.csv", "--endpoint-reconciler-type", "none"),
            *("--audit-policy-file", directory / "audit.yaml", "--audit-log-path", self.audit_log),
        )
        wait_until(lambda: self.api.ready, "the API server is ready")
        self._write_kubeconfig(url)
        common = ("--kubeconfig", self.kubeconfig, "--leader-elect=false", "--bind-address", "127.0.0.1")
        self._spawn(
            *("kube-controller-manager", *common, "--secure-port", free_port(), "--controllers", CONTROLLERS),
            *("--service-account-private-key-file", directory / "sa.key", "--root-ca-file", self.api.ca),
        )
        self._spawn("kube-scheduler", *common, "--secure-port", free_port())
        self.node.start()

    def _write_kubeconfig(self, url: str) -> None:
        cluster = {"server": url, "certificate-authority": str(self.api.ca)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": TOKEN}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        self.kubeconfig.write_text(json.dumps(content), encoding="utf-8")

    def _spawn(self, name: str, *arguments: object) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen([program(name), *map(str, arguments)], stdout=log, stderr=log, start_new_session=True)
            )

    def _stop(self) -> None:
        """The API server before etcd: one that has lost its etcd hangs."""
        self.node.stop()
        for process in reversed(self._processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
