"""The Helm chart, rendered by Helm's own code: every value reaches a document, and Kubernetes takes the documents."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from pairmark.service.cli import app
from pairmark.service.settings import Settings

helm = pytest.importorskip("helm_python")

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = str(DEPLOY / "chart")


def rendered(values: dict | None = None, *, name: str = "shop", revision: int = 3) -> list[dict]:
    """The documents that the chart makes."""
    texts = helm.Chart.load(CHART).render(values, name=name, namespace="any", revision=revision)
    return [
        document
        for path, text in texts.items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


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
    settings = {f"PAIRMARK_{name.upper()}" for name in Settings.model_fields}
    documents = rendered(values)
    assert {"Deployment", "Service", "Job", "ConfigMap", "PodDisruptionBudget"} <= {
        document["kind"] for document in documents
    }
    for document in documents:
        kubernetes_validate.validate(document, "1.34", strict=True)
        assert document["metadata"]["name"].startswith("shop")
        if document["kind"] == "ConfigMap":
            assert set(document["data"]) <= settings
            assert all(isinstance(value, str) for value in document["data"].values())
        pod = document["spec"]["template"]["spec"] if document["kind"] in ("Deployment", "Job") else None
        for container in (pod or {}).get("containers", []):
            words = container["args"]
            command = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
            command.make_context(words[0], list(words[1:])).close()
        for container in [*(pod or {}).get("containers", []), *(pod or {}).get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
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
    with pytest.raises(helm.HelmValuesError, match=name):
        helm.Chart.load(CHART).validate_schema(values)
