"""Releases in a real API server, with real daemons, brokers and Spark: install, upgrade, failed upgrade, rollback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.cluster import Cluster
from tests.chart.release import Release
from tests.conftest import SessionBroker, TopicMaker
from tests.support.processes import kill
from tests.support.rig import read_journal, restored_checkpoint
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

GRANTED = {
    "pods": {"create", "delete", "deletecollection", "get", "list", "watch"},
    "configmaps": {"create", "deletecollection"},
    "services": {"deletecollection"},
    "persistentvolumeclaims": {"deletecollection", "list"},
}
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
RESOURCES = ("pods", "configmaps", "services", "persistentvolumeclaims", "secrets", "events", "deployments.apps")
ON_KUBERNETES = {"spark": {"mode": "kubernetes", "executor": {"cpuRequest": "100m"}}}


@pytest.fixture
def release(
    cluster: Cluster, namespace: str, broker: SessionBroker, topics: TopicMaker, work: Path
) -> Iterator[Release]:
    """Whatever the test leaves installed is removed, so that its daemon ends with it."""
    made = Release(cluster, namespace, broker.bootstrap, (topics("numbers", 2), topics("doubled", 2)), work)
    yield made
    cluster.helm("uninstall", made.name, "-n", namespace, "--wait", "--timeout", "2m", "--ignore-not-found")


def test_install_upgrade_failed_upgrade_rollback_and_uninstall(cluster: Cluster, release: Release) -> None:
    """All in one pod, on a volume; the whole life of a release."""
    volume = cluster.create_volume(release.namespace, "ReadWriteOnce")
    release.write(500)
    release.helm("install")
    release.assert_exact()
    assert "Phase:          Succeeded" in cluster.helm("test", release.name, "-n", release.namespace).stdout

    first = release.process()
    release.helm("upgrade", values={"settings": {"checkpoints": {"interval": "300ms"}}})
    assert first.exit_codes == [0], first.text()[-3000:]
    second = release.process()
    assert second is not first
    final = re.findall(r"checkpoint (\d+) completed [^\"]*final", first.text())
    assert restored_checkpoint(second.text()) == int(final[-1])
    release.write(500)
    release.assert_exact()

    uid = release.daemon()["metadata"]["uid"]
    failed = release.helm("upgrade", "--set", "settings.kafka.bootstrap\\.servers=127.0.0.1:1", check=False)
    assert failed.returncode != 0
    assert "pre-upgrade hooks failed" in failed.stderr
    assert release.daemon()["metadata"]["uid"] == uid
    release.write(100)
    release.assert_exact()

    cluster.helm("rollback", release.name, "1", "-n", release.namespace, "--wait", "--timeout", "8m")
    assert release.daemon()["metadata"]["uid"] != uid
    assert second.exit_codes == [0], second.text()[-3000:]
    release.write(100)
    release.assert_exact()

    cluster.helm("uninstall", release.name, "-n", release.namespace, "--wait", "--timeout", "5m")
    wait_until(lambda: not cluster.get(release.namespace, "pods"), "no pod is left")
    left = cluster.kubectl(
        *("-n", release.namespace, "get", "all,configmaps,secrets,roles,rolebindings,pvc,sa", "-o", "name")
    ).split()
    own = {name for name in left if "tidegate" in name}
    assert own == {f"persistentvolumeclaim/{release.full_name}-checkpoints"}
    newest = read_journal(volume / "checkpoints").newest_checkpoint
    assert newest is not None
    assert newest.final


def test_executors_are_pods_of_least_privilege(cluster: Cluster, release: Release) -> None:
    """Client mode: the daemon asks for executors, an executor dies, the release goes, and the audit log has it all."""
    cluster.create_volume(release.namespace, "ReadWriteMany")
    release.write(500)
    release.helm("install", values=ON_KUBERNETES)
    release.assert_exact()
    executors = cluster.pods(release.namespace, "executor")
    assert len(executors) == 2
    daemon = release.daemon()
    for executor in executors:
        assert executor["metadata"]["ownerReferences"][0]["name"] == daemon["metadata"]["name"]
        assert executor["spec"]["serviceAccountName"] == f"{release.full_name}-executor"
        assert not [one for one in executor["spec"]["volumes"] if "projected" in one]
        assert executor["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True

    victim = executors[0]["metadata"]["name"]
    kill(cluster.node.find(victim).pid)
    release.write(500)
    release.assert_exact()
    wait_until(
        lambda: victim not in {pod["metadata"]["name"] for pod in cluster.pods(release.namespace, "executor")},
        "the pod of the killed executor is gone",
    )

    account = f"system:serviceaccount:{release.namespace}:{release.full_name}"
    granted = {
        resource: {
            verb
            for verb in VERBS
            if cluster.kubectl(
                *("-n", release.namespace, "auth", "can-i", verb, resource, "--as", account), check=False
            ).strip()
            == "yes"
        }
        for resource in RESOURCES
    }
    assert {resource: verbs for resource, verbs in granted.items() if verbs} == GRANTED

    cluster.kubectl("-n", release.namespace, "scale", f"deployment/{release.full_name}", "--replicas=0")
    wait_until(lambda: not cluster.get(release.namespace, "pods"), "no pod is left, of executors neither")
    events = [event for event in cluster.audited(account) if "objectRef" in event]
    assert [event for event in events if event.get("responseStatus", {}).get("code") == 403] == []
    used: dict[str, set[str]] = {}
    for event in events:
        used.setdefault(event["objectRef"]["resource"], set()).add(event["verb"])
    assert used == GRANTED
    assert cluster.audited(f"{account}-executor") == []
    assert cluster.get(release.namespace, "configmaps", "-l", "spark-app-selector") == []


def test_a_stop_takes_a_savepoint_first_and_a_killed_daemon_is_started_again(
    cluster: Cluster, release: Release
) -> None:
    """Mode `savepoint`: preStop and SIGTERM share the grace period. A killed container is restarted."""
    volume = cluster.create_volume(release.namespace, "ReadWriteOnce")
    release.write(300)
    release.helm("install", values={"upgrade": {"mode": "savepoint"}})
    release.assert_exact()
    first = release.process()
    kill(first.pid)
    wait_until(lambda: first.exit_codes == [137], "the container has ended")
    release.write(300)
    release.assert_exact()

    cluster.kubectl("-n", release.namespace, "rollout", "restart", f"deployment/{release.full_name}")
    wait_until(lambda: first.exit_codes == [137, 0], "the pod has stopped in order")
    assert "[node] preStop has ended with 0" in first.text()
    written = sorted((volume / "checkpoints" / "savepoints").rglob("metadata.json"))
    assert len(written) == 1, written
    release.write(100)
    release.assert_exact()
