"""What the chart renders, by helm itself: strict schemas of Kubernetes, refusals, and what each value does."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.claims import ClaimServer
from tests.chart.programs import CHART, EXAMPLES, KUBERNETES, find, helm, refused, render
from tidegate.daemon.control_token import _file_name

LOCAL = ("-f", CHART / "ci" / "local-values.yaml")
ON_KUBERNETES = ("-f", CHART / "ci" / "kubernetes-values.yaml")
FILE = "/etc/tidegate/pipeline/pipeline.yaml"
EXECUTORS = "spark.kubernetes.authenticate.executor.serviceAccountName"
WRONG = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicaz: 1, selector: {}, template: {}}\n"


def validated(file: Path) -> subprocess.CompletedProcess[str]:
    command = [os.environ["TIDEGATE_KUBERNETES_VALIDATE"], "--strict", "--kubernetes-version", KUBERNETES, str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def daemon(*arguments: object) -> Any:
    return find(render(*arguments), "Deployment")["spec"]["template"]


def site(objects: list[dict[str, Any]], name: str = "tidegate-site") -> Any:
    return yaml.safe_load(find(objects, "ConfigMap", name)["data"]["site.yaml"])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_pass_lint_and_strict_schemas(file: Path, tmp_path: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "-f", file).stdout
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(yaml.safe_dump_all(render("-f", file)), encoding="utf-8")
    ran = validated(rendered)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_strict_schemas_find_an_unknown_field(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG, encoding="utf-8")
    assert validated(file).returncode != 0


def test_files_that_are_no_text_arrive_byte_by_byte_and_are_refused_among_texts(tmp_path: Path) -> None:
    """Helm writes a replacement character for each byte that is no UTF-8: a descriptor set was damaged in silence."""
    data = b"\x0a\xd3\x01\x0a\xff"
    raw, coded = tmp_path / "order.desc", tmp_path / "order.b64"
    raw.write_bytes(data)
    coded.write_bytes(base64.b64encode(data))
    found = render(*LOCAL, "--set-file", f"binaryFiles.order\\.desc={coded}")
    binary = [one["binaryData"] for one in found if "binaryData" in one]
    assert [base64.b64decode(one["order.desc"]) for one in binary] == [data, data], "the pipeline's, and the check's"
    assert "files: order.desc is no text" in refused(*LOCAL, "--set-file", f"files.order\\.desc={raw}")
    both = ("--set-file", f"binaryFiles.a={coded}", "--set", "files.a=x")
    assert "a is both in `files` and in `binaryFiles`" in refused(*LOCAL, *both)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no pipeline: add `--set-file pipeline=FILE`"),
        ([*LOCAL, "--set", "pipelineConfigMap.name=x"], "there are two pipelines"),
        ([*LOCAL, "--set", "replicas=2"], "additional properties 'replicas' not allowed"),
        ([*LOCAL, "--set", "settings.checkpoints.intervall=5s"], "additional properties 'intervall' not allowed"),
        ([*LOCAL, "--set", "settings.http.port=80"], "settings.http.port is set by the chart: remove it"),
        ([*LOCAL, "--set", "settings.spark.master=yarn"], "and use the value `spark.mode`"),
        ([*LOCAL, "--set", "spark.mode=external"], "spark.external.master is needed"),
        ([*LOCAL, "--set", "checkpoints.address=file:///x"], "for a directory use checkpoints.volume"),
        ([*LOCAL, "--set", "start.repeatOutput=true"], "start.repeatOutput needs start.restore"),
        ([*LOCAL, "--set", "start.acceptGone=true"], "acceptGone"),
        ([*LOCAL, "--set", "ingress.enabled=true"], "ingress.enabled needs ingress.host"),
        ([*LOCAL, "--set", "ingress.enabled=true,ingress.host=a,service.enabled=false"], "needs service.enabled"),
        (
            [*LOCAL, "--set", "http.readToken.secretName=t,settings.http.read_token_file=/t"],
            "settings.http.read_token_file is set by the chart: remove it, and use the value `http.readToken`",
        ),
        ([*ON_KUBERNETES, "--set", "metrics.podMonitor.enabled=true"], "would scrape the same port twice"),
        (["--set", "pipelineConfigMap.name=x,spark.mode=kubernetes"], "settings.parallelism is needed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_contradict_are_refused(arguments: list[object], said: str) -> None:
    assert said in refused(*arguments)


def test_the_pipeline_file_arrives_unchanged(tmp_path: Path) -> None:
    """Order of columns and routes, comments, words that other YAML versions take for booleans."""
    text = "# why\nversion: 1\nname: o\nsteps:\n  - {name: k, route: {z: a > 1, a: on = 'no', rest: else}}\n"
    file = tmp_path / "orders.yaml"
    file.write_text(text, encoding="utf-8")
    objects = render("--set-file", f"pipeline={file}")
    assert find(objects, "ConfigMap", "tidegate-pipeline")["data"]["pipeline.yaml"] == text


def test_numbers_in_settings_stay_numbers() -> None:
    assert site(render(*LOCAL))["kafka"]["queue.buffering.max.messages"] == 2_000_000


@pytest.mark.parametrize(("slots", "cores", "pods"), [(3, 2, "2"), (4, 2, "2"), (1, 4, "1"), (128, 1, "128")])
def test_there_are_as_many_executors_as_slots_need(slots: int, cores: int, pods: str) -> None:
    values = f"settings.parallelism={slots},spark.executor.cores={cores}"
    assert site(render(*ON_KUBERNETES, "--set", values))["spark"]["spark.executor.instances"] == pods


def test_the_chart_counts_slots_of_the_file_itself() -> None:
    assert site(render(*LOCAL))["spark"]["master"] == "local[2]"


def test_every_pod_is_restricted() -> None:
    objects = render(*ON_KUBERNETES)
    executor = yaml.safe_load(find(objects, "ConfigMap", "tidegate-site")["data"]["executor.yaml"])
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("Deployment", "Job")]
    assert len(pods) == 3
    for pod in [*pods, executor["spec"]]:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_only_the_driver_has_a_token() -> None:
    objects = render(*ON_KUBERNETES)
    assert find(objects, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    jobs = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Job"]
    assert [pod["automountServiceAccountToken"] for pod in jobs] == [False, False]
    assert daemon(*LOCAL)["spec"]["automountServiceAccountToken"] is False
    assert [one for one in render(*LOCAL) if one["kind"] in ("Role", "RoleBinding")] == []


def test_the_grace_period_has_room_for_savepoint_and_final_checkpoint() -> None:
    assert daemon(*LOCAL)["spec"]["terminationGracePeriodSeconds"] == 90
    pod = daemon(*LOCAL, "--set", "upgrade.mode=savepoint,stop.graceSeconds=100,upgrade.savepointSeconds=50")["spec"]
    assert pod["terminationGracePeriodSeconds"] == 180
    hook = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[:4] == ["timeout", "50", "tidegate", "savepoint"]
    assert site(render(*LOCAL, "--set", "stop.graceSeconds=100"))["runtime"]["shutdown_grace"] == "100s"


def test_the_pod_changes_with_its_configuration_and_with_nothing_else() -> None:
    sums = {
        values: daemon(*LOCAL, "--set", values)["metadata"]["annotations"]["checksum/config"]
        for values in ("test.enabled=true", "test.enabled=false", "settings.checkpoints.interval=9s", "http.port=9000")
    }
    assert sums["test.enabled=true"] == sums["test.enabled=false"]
    assert len(set(sums.values())) == 3


def test_stateless_upgrades_have_a_directory_for_every_revision_and_are_checked_as_such() -> None:
    objects = render(*LOCAL, "--set", "upgrade.mode=stateless")
    assert site(objects)["checkpoints"]["directory"].endswith("/checkpoints/revision-1")
    assert "--begin-anew" in find(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert site(objects, "-check-site")["checkpoints"] == site(objects)["checkpoints"]
    assert check_of(objects)["command"][2].startswith(f"tidegate validate --connect {FILE} --begin-anew ")


def test_a_digest_takes_precedence_over_the_tag() -> None:
    digest = "sha256:" + "a" * 64
    pod = daemon(*LOCAL, "--set", f"image.repository=r.example/t,image.tag=v1,image.digest={digest}")["spec"]
    assert pod["containers"][0]["image"] == f"r.example/t@{digest}"


def test_a_variable_of_the_charts_own_name_takes_its_place() -> None:
    pod = daemon("-f", CHART / "ci" / "external-values.yaml")["spec"]
    environ = [one for one in pod["containers"][0]["env"] if one["name"] == "POD_IP"]
    assert environ == [{"name": "POD_IP", "value": "10.1.2.3"}]


def test_alerts_are_labelled_and_can_be_left_out() -> None:
    (group,) = find(render(*ON_KUBERNETES), "PrometheusRule")["spec"]["groups"]
    whole = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert {rule["alert"] for rule in whole} - {rule["alert"] for rule in group["rules"]} == {"TidegateRestarts"}
    assert all(rule["labels"]["team"] == "orders" and rule["labels"]["severity"] for rule in group["rules"])


def test_selectors_lead_to_the_daemons_pod_and_not_to_executors() -> None:
    objects = render(*ON_KUBERNETES)
    pod = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    executor = yaml.safe_load(find(objects, "ConfigMap", "tidegate-site")["data"]["executor.yaml"])["metadata"][
        "labels"
    ]
    for selector in (
        find(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        find(objects, "Service")["spec"]["selector"],
        find(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= pod.items()
        assert not selector.items() <= executor.items()
    inside = find(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert inside.items() <= pod.items()
    assert inside.items() <= executor.items()
    monitor = find(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= find(objects, "Service")["metadata"]["labels"].items()


def notes(*arguments: object) -> str:
    """What an installation prints."""
    text = helm("install", "rel", CHART, *arguments, "--dry-run=client", "-n", "streams").stdout
    return text.partition("NOTES:\n")[2]


def test_notes_have_the_commands_of_this_release() -> None:
    text = notes(*LOCAL)
    assert "kubectl -n streams exec deploy/rel-tidegate -- tidegate status /etc/tidegate/pipeline/pipeline.yaml" in text


def test_notes_say_how_to_open_the_page() -> None:
    text = notes(*LOCAL)
    assert "kubectl -n streams port-forward svc/rel-tidegate 9095\n  open http://127.0.0.1:9095/\n" in text
    assert f"sh -c 'cat /tmp/tidegate-*/{_file_name(9095)}'" in text
    assert "token in Secret" not in text
    text = notes(*LOCAL, "--set", "service.enabled=false,settings.http.token_file=/var/lib/tidegate/token")
    assert "port-forward deploy/rel-tidegate 9095" in text
    assert "sh -c 'cat /var/lib/tidegate/token'" in text
    text = notes(*LOCAL, "--set", "ingress.enabled=true,ingress.host=orders.example")
    assert "or http://orders.example/\nEveryone who reaches orders.example can read it: set http.readToken" in text
    text = notes(*ON_KUBERNETES)
    assert "or https://orders.example.org/\nIt asks for the token in Secret orders-read, key token.\n" in text


def test_the_ingress_leads_to_the_service_and_has_a_certificate() -> None:
    objects = render(*ON_KUBERNETES)
    ingress = find(objects, "Ingress")
    assert ingress["metadata"]["annotations"].items() >= {"cert-manager.io/cluster-issuer": "letsencrypt"}.items()
    spec = ingress["spec"]
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"hosts": ["orders.example.org"], "secretName": "orders-page"}]
    (rule,) = spec["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("orders.example.org", "/", "Prefix")
    service = find(objects, "Service")
    (port,) = service["spec"]["ports"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert port["appProtocol"] == "http"
    assert [one for one in render(*LOCAL) if one["kind"] == "Ingress"] == []


def test_the_read_token_is_that_of_the_daemon_and_of_the_scrape_and_executors_have_none() -> None:
    objects = render(*ON_KUBERNETES)
    assert site(objects)["http"]["read_token_file"] == "/etc/tidegate/read-token/token"
    pod = find(objects, "Deployment")["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "read-token"]
    assert volume["secret"] == {"secretName": "orders-read", "defaultMode": 0o440}
    assert "/etc/tidegate/read-token" in [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]
    assert "orders-read" not in find(objects, "ConfigMap", "tidegate-site")["data"]["executor.yaml"]
    (endpoint,) = find(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "orders-read", "key": "token"}}
    (script,) = find(objects, "Job", "-test")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "tidegate status" not in script
    assert "read_token_file" not in site(render(*LOCAL))["http"]


def check_of(objects: list[dict[str, Any]]) -> Any:
    """The container of the check before an upgrade."""
    (container,) = find(objects, "Job", "-check")["spec"]["template"]["spec"]["containers"]
    return container


def test_words_about_state_reach_the_run_and_its_check() -> None:
    """`upgrade` has only those schemas of a registry that `validate --connect` has left next to it."""
    objects = render(*LOCAL, "--set", "start.drop={old,older},start.reset={totals}")
    words = ["--drop=old", "--drop=older", "--reset=totals"]
    run = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert run["args"][2:] == words
    for check, args in ((check_of(objects), words), (check_of(render(*LOCAL)), [])):
        assert check["args"] == args
        assert check["command"][2] == (f'tidegate validate --connect {FILE} "$@" && exec tidegate upgrade {FILE} "$@"')


@pytest.mark.parametrize(
    ("values", "validate", "upgrade"),
    [
        ("start.beginAnew=true,start.reset={totals}", ["--begin-anew", "--reset=totals"], ["--reset=totals"]),
        (
            'start.restore=/it\'s "saved",start.repeatOutput=true,start.keep={totals}',
            ['--restore=/it\'s "saved"', "--repeat-output", "--keep=totals"],
            ['--from=/it\'s "saved"', "--keep=totals"],
        ),
    ],
    ids=["begin", "restore"],
)
def test_the_check_is_given_what_the_run_is_given(
    tmp_path: Path, values: str, validate: list[str], upgrade: list[str]
) -> None:
    """By the shell that runs it, with a `tidegate` that writes down how it is called."""
    check = check_of(render(*LOCAL, "--set", values))
    stand_in = tmp_path / "tidegate"
    stand_in.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n', encoding="utf-8")
    stand_in.chmod(0o755)
    command, environ = [*check["command"], *check["args"]], {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == [
        *("validate", "--connect", FILE, *validate),
        *("upgrade", FILE, *upgrade),
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [("acceptGone: 2000000", ["--accept-gone=2000000"]), ("acceptGone: 0", []), ("acceptGone: null", [])],
)
def test_what_is_accepted_as_gone_is_said_for_one_checkpoint(tmp_path: Path, values: str, words: list[str]) -> None:
    """From a file: helm reads its numbers as floats, and would write 2e+06."""
    file = tmp_path / "values.yaml"
    file.write_text(f"start: {{{values}}}\n", encoding="utf-8")
    assert daemon(*LOCAL, "-f", file)["spec"]["containers"][0]["args"][2:] == words


def test_notes_and_paths_reach_the_run_as_they_are() -> None:
    """In YAML a colon would make a mapping of a note, and a hash a comment of its end."""
    values = ("--set-json", 'start.keep=["totals=net: without #VAT"]', "--set-json", 'start.restore="/saved: one #1"')
    args = daemon(*LOCAL, *values)["spec"]["containers"][0]["args"]
    assert args[2:] == ["--restore=/saved: one #1", "--keep=totals=net: without #VAT"]


def test_labels_of_pods_are_there_once_and_selectors_find_them() -> None:
    own = "app\\.kubernetes\\.io/component"
    values = f"commonLabels.team=a,podLabels.team=b,podLabels.{own}=x,podAnnotations.checksum/config=x"
    text = helm("template", "rel", CHART, *ON_KUBERNETES, "--set", f"{values},spark.executor.podLabels.team=c").stdout
    objects = [one for one in yaml.load_all(text, Loader=Once) if one]
    pod = find(objects, "Deployment")["spec"]["template"]["metadata"]
    assert (pod["labels"]["team"], pod["labels"]["app.kubernetes.io/component"]) == ("b", "daemon")
    assert len(pod["annotations"]["checksum/config"]) == 64
    executor = find(objects, "ConfigMap", "tidegate-site")["data"]["executor.yaml"]
    labels = yaml.load(executor, Loader=Once)["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/component"]) == ("c", "executor")


class Once(yaml.SafeLoader):
    """Refuses a key that is given twice, as Helm does when it installs."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), keys
        return super().construct_mapping(node, deep)


def test_names_of_digits_are_texts(tmp_path: Path) -> None:
    claim = "1" * 62 + ".b"
    values = f"fullnameOverride=789,nameOverride=1,checkpoints.volume.existingClaim={claim}"
    values += ",spark.mode=local,serviceAccount.name=5"
    text = helm("template", "123", CHART, "-n", "456", *LOCAL, "--set-string", values).stdout
    objects = [one for one in yaml.safe_load_all(text) if one]
    assert {one["metadata"]["namespace"] for one in objects} == {"456"}
    assert all(isinstance(one["metadata"]["name"], str) for one in objects)
    pod = find(objects, "Deployment")["spec"]["template"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == "123"
    assert pod["metadata"]["labels"]["tidegate/volume"] == "1" * 62, "a label ends with a letter or digit"
    assert pod["spec"]["serviceAccountName"] == "5"


def test_files_of_secrets_are_in_daemon_and_executors_and_an_address_takes_the_place_of_the_volume() -> None:
    objects = render("-f", CHART / "ci" / "configmap-values.yaml", namespace="streams")
    executor = yaml.safe_load(find(objects, "ConfigMap", "orders-site")["data"]["executor.yaml"])
    for pod in (find(objects, "Deployment")["spec"]["template"]["spec"], executor["spec"]):
        assert "/etc/tidegate/s3" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert not [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert [one for one in objects if one["kind"] == "PersistentVolumeClaim"] == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("spark.mode=local", ""),
        ("spark.mode=kubernetes,checkpoints.volume.accessModes={ReadWriteOnce}", ""),
        ("spark.mode=local,checkpoints.volume.storageClass=disks", ""),
        ("spark.mode=kubernetes", 'rel-tidegate-checkpoints has accessModes ["ReadWriteOnce"], and ["ReadWriteMany"]'),
        ("checkpoints.volume.storageClass=shared", "has storageClass disks, and shared is asked for"),
        ("spark.mode=kubernetes,checkpoints.volume.existingClaim=mine", ""),
        ("spark.mode=kubernetes,fullnameOverride=another", ""),
    ],
)
def test_what_a_claim_cannot_become_is_refused_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: str, said: str
) -> None:
    """Helm applies everything else, and the daemon would ask for executors that cannot mount the volume."""
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with ClaimServer(
        "rel-tidegate-checkpoints", {"accessModes": ["ReadWriteOnce"], "storageClassName": "disks"}
    ) as server:
        told = refused(*LOCAL, "--dry-run=server", "--kube-apiserver", server.endpoint, "--set", values)
    rendered = "unable to build kubernetes objects from release manifest"  # of which the server knows nothing
    assert (said or rendered) in told


def test_tls_of_http_is_that_of_probes_scrape_and_helm_test() -> None:
    """Wherever the file says it; where reading needs a certificate the test asks a probe only."""
    tls = "settings.http.tls.certificate=/tls/tls.crt,settings.http.tls.key=/tls/tls.key"
    client = "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.tlsConfig.serverName=orders"
    for roles in ("", ",settings.http.tls.client_ca=/tls/ca.crt"):
        objects = render(*LOCAL, "--set", f"{tls},{client}{roles}")
        (daemon,) = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert {daemon[f"{probe}Probe"]["httpGet"]["scheme"] for probe in ("startup", "liveness", "readiness")} == {
            "HTTPS"
        }
        (endpoint,) = find(objects, "ServiceMonitor")["spec"]["endpoints"]
        assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "orders"})
        (script,) = find(objects, "Job", "-test")["spec"]["template"]["spec"]["containers"][0]["args"]
        assert ("tidegate status" in script) is (roles == "")
        assert 'urlopen("https://rel-tidegate.streams.svc:9095/readyz"' in script
    (daemon,) = find(render(*LOCAL), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert daemon["readinessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_hooks_have_the_account_and_the_labels_by_which_a_cloud_knows_the_daemon() -> None:
    """The check of an upgrade reads checkpoints, in an object store by the role of the service account."""
    objects = render(*ON_KUBERNETES, "--set", "podLabels.azure\\.workload\\.identity/use=yes")
    for pod in [one["spec"]["template"] for one in objects if one["kind"] in ("Deployment", "Job")]:
        assert pod["spec"]["serviceAccountName"] == "rel-tidegate"
        assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "yes"


def test_the_check_of_an_upgrade_that_makes_the_account_does_without_it() -> None:
    """It runs before anything is made: a pod of an account that is not there would wait until the deadline."""
    upgrade = render(*ON_KUBERNETES, "--is-upgrade")  # without a cluster there is no account
    assert find(upgrade, "Job", "-check")["spec"]["template"]["spec"]["serviceAccountName"] == "default"
    assert find(upgrade, "Job", "-test")["spec"]["template"]["spec"]["serviceAccountName"] == "rel-tidegate"
    given = render(*ON_KUBERNETES, "--is-upgrade", "--set", "serviceAccount.create=false,serviceAccount.name=mine")
    assert find(given, "Job", "-check")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_executors_have_the_account_that_the_chart_did_not_make() -> None:
    own = render("-f", CHART / "ci" / "configmap-values.yaml")
    assert site(own, "orders-site")["spark"][EXECUTORS] == "streams"
    assert find(own, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "streams"
    assert site(render(*ON_KUBERNETES))["spark"][EXECUTORS] == "rel-tidegate-executor"
    neither = render(*ON_KUBERNETES, "--set", "serviceAccount.create=false")
    assert site(neither)["spark"][EXECUTORS] == "default"


def test_helm_test_asks_a_probe_only_where_the_file_itself_wants_a_token(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    for http, asked in (("{read_token_file: /run/token}", False), ("{token_file: /run/token}", True)):
        file.write_text(f"version: 1\nname: o\nhttp: {http}\n", encoding="utf-8")
        job = find(render("--set-file", f"pipeline={file}"), "Job", "-test")
        (script,) = job["spec"]["template"]["spec"]["containers"][0]["args"]
        assert ("tidegate status" in script) is asked
        assert "/readyz" in script


def test_roles_of_the_file_count_next_to_what_settings_say_of_tls(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("version: 1\nname: o\nhttp: {tls: {certificate: /a, key: /b, client_ca: /c}}\n", encoding="utf-8")
    objects = render("--set-file", f"pipeline={file}", "--set", "settings.http.tls.operate={ann}")
    (script,) = find(objects, "Job", "-test")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "tidegate status" not in script
