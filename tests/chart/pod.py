"""One pod as processes: see `node.py`. One container; init containers are for a node that has images."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import threading
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from tests.chart.api import Api
from tests.chart.sandbox import Mount, derive_command, image_environment, run_inside, spawn

NODE: Final = "node-1"
LOOK_S: Final = 0.2
BACK_OFF_S: Final = 2.0


class Pod:
    """Start it once; `end` is asynchronous, `kill` is at once."""

    def __init__(self, api: Api, pod: dict[str, Any], directory: Path, address: str) -> None:
        self._api = api
        self._pod = pod
        self._directory = directory
        self._address = address
        self._log = directory / "log"
        self._container = pod["spec"]["containers"][0]
        self._process: subprocess.Popen[bytes] | None = None
        self._grace_s: float | None = None
        self._restarts = 0
        self._codes: list[int] = []
        self._environ: dict[str, str] = {}
        self._killed = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def name(self) -> str:
        """Of the pod."""
        return str(self._pod["metadata"]["name"])

    @property
    def pid(self) -> int:
        """Of the container's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_codes(self) -> list[int]:
        """Of its container so far."""
        return list(self._codes)

    def text(self) -> str:
        """What it has written."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Returns at once."""
        self._directory.mkdir()
        self._thread.start()

    def end(self, grace_s: float) -> None:
        """As the deletion of a pod: hook, SIGTERM, SIGKILL after the grace. A repetition changes nothing."""
        if self._grace_s is None:
            self._grace_s = grace_s
            self._wake.set()

    def kill(self) -> None:
        """Now."""
        self._killed.set()
        self._wake.set()
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    # -- its thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            mounts = self._mounts()
            self._environ = self._variables()
            while not self._asked():
                self._run_container(mounts)
                again = self._pod["spec"].get("restartPolicy", "Always")
                if again == "Never" or (again == "OnFailure" and self._codes[-1] == 0):
                    break
                self._restarts += 1
                self._wake.wait(BACK_OFF_S)
        except Exception as error:
            self._say(f"the pod cannot run: {error!r}")
            raise
        finally:
            self._finish()

    def _run_container(self, mounts: list[Mount]) -> None:
        command = derive_command(self._container.get("command", []), self._container.get("args", []), self._environ)
        process = self._process = spawn(
            command, self._environ, mounts, self._directory / "overlays", self._directory.parents[1], self._log
        )
        probes = Probes(self._container, self._address)
        self._report("Running", ready=False)
        ready = False
        while process.poll() is None:
            self._wake.wait(LOOK_S)
            if self._killed.is_set():
                self.kill()
                process.wait()
            elif self._grace_s is not None:
                self._stop(process, self._grace_s)
            elif not probes.look():
                self._say("the liveness probe has failed: restarting")
                self._stop(process, 5.0)
            elif probes.ready != ready:
                ready = probes.ready
                self._report("Running", ready=ready)
        self._codes.append(process.returncode if process.returncode >= 0 else 128 - process.returncode)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a container ends with its first process
        self._say(f"the container has ended with {self._codes[-1]}")

    def _stop(self, process: subprocess.Popen[bytes], grace_s: float) -> None:
        """The hook and the signal share the grace."""
        deadline = time.monotonic() + grace_s
        hook = self._container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if hook:
            code = run_inside(process.pid, hook, self._environ, self._log, grace_s)
            self._say(f"preStop has ended with {code}")
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        if process.poll() is None:
            self._say("killed: the grace period is over")
            self.kill()
            process.wait()

    def _asked(self) -> bool:
        """Whether the pod has to end."""
        return self._grace_s is not None or self._killed.is_set()

    def _finish(self) -> None:
        failed = not self._codes or self._codes[-1] != 0
        if not self._asked():
            self._report("Failed" if failed else "Succeeded", ready=False)
            while not self._asked():
                self._wake.wait()
        if self._killed.is_set():
            return
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._pod["metadata"]["uid"]}}
        with contextlib.suppress(HTTPError):
            self._api.ask("DELETE", self._path, body)

    # -- the API server --------------------------------------------------------------------------------------------

    @property
    def _namespace(self) -> str:
        return str(self._pod["metadata"]["namespace"])

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods/{self.name}"

    def _report(self, phase: str, *, ready: bool) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = phase in ("Failed", "Succeeded")
        state: dict[str, Any] = {"running": {"startedAt": now}}
        if ended:
            state = {"terminated": {"exitCode": self._codes[-1] if self._codes else 128, "reason": "Ended"}}
        container = {
            "name": self._container["name"],
            "image": self._container["image"],
            "imageID": "",
            "ready": ready,
            "restartCount": self._restarts,
            "state": state,
        }
        conditions = [
            {"type": kind, "status": "True" if ready or kind == "Initialized" else "False", "lastTransitionTime": now}
            for kind in ("Initialized", "Ready", "ContainersReady")
        ] + [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
        status = {
            "phase": phase,
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "hostIP": "127.0.0.1",
            "startTime": now,
            "containerStatuses": [container],
            "conditions": conditions,
        }
        with contextlib.suppress(HTTPError):
            self._api.ask("PATCH", f"{self._path}/status", {"status": status}, "merge")

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._api.ask("GET", f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        return found

    def _say(self, text: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"[node] {text}\n")

    # -- variables and volumes -------------------------------------------------------------------------------------

    def _variables(self) -> dict[str, str]:
        found = image_environment()
        found |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._api.port)}
        for one in self._container.get("env", []):
            found[one["name"]] = self._value(one)
        return found

    def _value(self, one: dict[str, Any]) -> str:
        source = one.get("valueFrom")
        if source is None:
            return str(one.get("value", ""))
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            fields = {"metadata.name": self.name, "metadata.namespace": self._namespace, "status.podIP": self._address}
            return fields[path]
        reference = source["secretKeyRef"]
        return base64.b64decode(self._get("secrets", reference["name"])["data"][reference["key"]]).decode()

    def _mounts(self) -> list[Mount]:
        sources = {volume["name"]: self._volume(volume) for volume in self._pod["spec"].get("volumes", [])}
        mounts = [Mount(self._hosts(), "/etc/hosts", read_only=True)]
        for mount in self._container.get("volumeMounts", []):
            source = sources[mount["name"]] / mount.get("subPath", "")
            source.mkdir(parents=True, exist_ok=True)
            mounts.append(Mount(source, mount["mountPath"], mount.get("readOnly", False)))
        return mounts

    def _hosts(self) -> Path:
        """Names of Services. Their endpoints cannot say so: the API server takes no loopback address for one."""
        path = f"/api/v1/namespaces/{self._namespace}"
        pods, services = (self._api.ask("GET", f"{path}/{kind}")["items"] for kind in ("pods", "services"))
        lines = ["127.0.0.1 localhost", f"127.0.0.1 {os.uname().nodename}"]
        lines += [
            f"{pod['status']['podIP']} {service['metadata']['name']}.{self._namespace}.svc"
            for service in services
            for pod in pods
            if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items() and "podIP" in pod["status"]
        ]
        file = self._directory / "hosts"
        file.write_text("\n".join(lines) + "\n", encoding="ascii")
        return file

    def _volume(self, volume: dict[str, Any]) -> Path:
        path = self._directory / "volumes" / str(volume["name"])
        path.mkdir(parents=True)
        if "persistentVolumeClaim" in volume:
            claim = self._get("persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"])
            found = self._api.ask("GET", f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
            return Path(str(found["spec"]["hostPath"]["path"]))
        if "configMap" in volume:
            self._write(path, self._get("configmaps", volume["configMap"]["name"]).get("data", {}))
        elif "secret" in volume:
            data = self._get("secrets", volume["secret"]["secretName"])["data"]
            self._write(path, {name: base64.b64decode(value).decode() for name, value in data.items()})
        elif "projected" in volume:
            for source in volume["projected"]["sources"]:
                self._write(path, self._projected(source))
        else:
            assert "emptyDir" in volume, volume
            path.chmod(0o1777)
        return path

    def _projected(self, source: dict[str, Any]) -> dict[str, str]:
        if "configMap" in source:
            return dict(self._get("configmaps", source["configMap"]["name"])["data"])
        if "downwardAPI" in source:
            return {"namespace": self._namespace}
        account = self._pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        reference = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self._pod["metadata"]["uid"]}
        made = self._api.ask("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": reference}})
        return {"token": made["status"]["token"]}

    @staticmethod
    def _write(path: Path, data: dict[str, str]) -> None:
        for name, text in data.items():
            (path / name).write_text(text, encoding="utf-8")


class Probes:
    """Startup, then liveness and readiness, each by its own period."""

    def __init__(self, container: dict[str, Any], address: str) -> None:
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", []) if "name" in port}
        self._urls: dict[str, str] = {}
        self._probes: dict[str, dict[str, Any]] = {}
        for kind in ("startup", "liveness", "readiness"):
            probe = container.get(f"{kind}Probe")
            if probe is not None:
                port = ports.get(probe["httpGet"]["port"], probe["httpGet"]["port"])
                self._urls[kind] = f"http://{address}:{port}{probe['httpGet']['path']}"
                self._probes[kind] = probe
        self._failures = dict.fromkeys(self._probes, 0)
        self._next_s: dict[str, float] = {}
        self._started = "startup" not in self._probes
        self.ready = not self._probes

    def look(self) -> bool:
        """False when the container has to be restarted."""
        for kind, probe in self._probes.items():
            now = time.monotonic()
            if now < self._next_s.get(kind, 0.0) or (kind == "startup") == self._started:
                continue
            self._next_s[kind] = now + min(float(probe.get("periodSeconds", 10)), 1.0)
            good = self._ask(kind, float(probe.get("timeoutSeconds", 1)))
            self._failures[kind] = 0 if good else self._failures[kind] + 1
            failed = self._failures[kind] >= probe.get("failureThreshold", 3)
            if kind == "startup":
                self._started = good
            elif kind == "readiness" and (good or failed):
                self.ready = good
            if failed and kind != "readiness":
                return False
        return True

    def _ask(self, kind: str, timeout_s: float) -> bool:
        try:
            with urllib.request.urlopen(self._urls[kind], timeout=timeout_s) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
