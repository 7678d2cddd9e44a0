"""The deployment files: what they name exists, Kubernetes takes them, and Helm's own code renders the chart."""

import configparser
import json
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from prometheus_client import REGISTRY, generate_latest
from typer.main import get_command

import pairmark.service.app  # noqa: F401
from pairmark.service.api.metrics import Deployment
from pairmark.service.api.services import Readings
from pairmark.service.cli import app
from pairmark.service.jobs.queue import QueueReading
from pairmark.service.settings import Settings
from tests.serving import ROOT

DEPLOY = ROOT / "deploy"
SETTINGS = {f"PAIRMARK_{name.upper()}" for name in Settings.model_fields} | {"PAIRMARK_POSTGRES_PASSWORD"}
_NAME = re.compile(r"pairmark_[a-z0-9_]+")


def metric_names() -> set[str]:
    """Every name that a scrape can hold."""
    queue = QueueReading(states={"queued": 1}, workers=1, oldest_s=1.0)
    readings = Readings(queue=queue, galleries={"g": 1}, calibration_ages={"m": 1.0}, last_backup=1.0)
    names = set(_NAME.findall(generate_latest(Deployment(readings, {"home": Path("/")})).decode()))
    for family in REGISTRY.collect():
        names |= {f"{family.name}{end}" for end in ("", "_total", "_bucket", "_sum", "_count")}
    return names


def test_alerts_and_dashboard_ask_for_metrics_that_there_are():
    known = metric_names()
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "grafana" / "pairmark.json").read_text())
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        names = _NAME.findall(expression)
        assert names, expression
        assert set(names) <= known, expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def check_command(words: list[str]) -> None:
    """Whether the command line takes these words."""
    command = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], list(words[1:]), resilient_parsing=False).close()


def check(documents: list[dict]) -> None:
    """Documents of Kubernetes name settings and commands that there are; containers cannot write their own files."""
    assert {"Deployment", "Service", "Job", "ConfigMap"} <= {document["kind"] for document in documents}
    for document in documents:
        if document["kind"] == "ConfigMap":
            assert set(document["data"]) <= SETTINGS
            assert all(isinstance(value, str) for value in document["data"].values())
        pod = document.get("spec", {}).get("template", {}).get("spec") or {}
        for container in pod.get("containers", []):
            check_command(container["args"])
        for container in [*pod.get("containers", []), *pod.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"]


def test_manifests_run_commands_that_there_are_with_settings_that_there_are():
    check(
        [
            document
            for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
            for document in yaml.safe_load_all(file.read_text())
        ]
    )
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name, service in compose["services"].items():
        given = {key for key in service.get("environment", {}) if key.startswith("PAIRMARK_")}
        assert given <= SETTINGS, name
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        secrets = [mount for mount in service["volumes"] if mount.startswith("secrets:")]
        # Dask's own processes run what they are sent: they hold no password, and speak with nobody unknown.
        assert bool(secrets) == (name not in ("scheduler", "dask-worker")), name
        assert "PAIRMARK_DATABASE_URL" not in service["environment"] or secrets, name
        if name in ("scheduler", "dask-worker", "cluster-worker"):
            assert service["environment"]["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
            assert "tcp://" not in str(service)
        if name != "postgres":
            assert service["image"] == "${PAIRMARK_IMAGE:-pairmark}"
            # The Dask scheduler and its workers run a program of their own.
            if "entrypoint" not in service:
                check_command(
                    [word.replace("${PAIRMARK_API_PROCESSES:-1}", "1") for word in service["command"]]
                )
    assert set(compose["volumes"]) == {"secrets", "cluster", "data", "cache", "database"}


def test_units_run_commands_that_there_are():
    for file in sorted((DEPLOY / "systemd").glob("*.service")):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read(file)
        line = unit["Service"]["ExecStart"]
        line = re.sub(r"\$\([^)]*\)", "now", line).replace('"', "")
        check_command(re.search(r"/opt/pairmark/bin/pairmark ([^'\n]+)", line)[1].split())


CHART = str(DEPLOY / "chart")
WISHES = {
    "image": {
        "repository": "registry.example/pairmark",
        "tag": "1.2",
        "pullPolicy": "Always",
        "pullSecrets": ["pull"],
    },
    "settings": {"PAIRMARK_LOG_LEVEL": "DEBUG", "PAIRMARK_METRICS_PUBLIC": True},
    "secret": "shop-secret",
    "api": {
        "replicas": 5,
        "scheduling": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
    },
    "worker": {"replicas": 0, "resources": {"limits": {"memory": "1Gi"}}},
    "service": {"type": "NodePort", "port": 8080},
    "ingress": {
        "host": "match.example",
        "className": "nginx",
        "tlsSecret": "tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "64m"},
    },
}


@pytest.mark.parametrize("values", [None, WISHES], ids=["defaults", "all values"])
def test_the_chart_makes_documents_that_kubernetes_takes(values: dict | None):
    helm = pytest.importorskip("helm_python")
    texts = helm.Chart.load(CHART).render(values, name="shop", namespace="any", revision=3)
    documents = [
        document
        for path, text in texts.items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]
    check(documents)
    assert "PodDisruptionBudget" in {document["kind"] for document in documents}
    for document in documents:
        kubernetes_validate.validate(document, "1.34", strict=True)
        assert document["metadata"]["name"].startswith("shop")
    report = helm.lint(CHART, values, strict=True)
    assert not report["errors"], report


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"settings": {"PAIRMARK_DATABASE_URL": "postgresql://u:secret@h/d"}}, "settings"),
        ({"settings": {"LOG_LEVEL": "DEBUG"}}, "LOG_LEVEL"),
        ({"replicas": 3}, "replicas"),
        ({"api": {"replicas": 0}}, "replicas"),
        ({"worker": {"replicas": "two"}}, "replicas"),
        ({"image": {"tag": 1}}, "tag"),
    ],
)
def test_the_chart_refuses_values_that_are_none(values: dict, name: str):
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmValuesError, match=name):
        helm.Chart.load(CHART).validate_schema(values)
