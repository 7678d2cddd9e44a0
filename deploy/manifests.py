"""Writes the manifests that kustomize reads from the Helm chart: ``python deploy/manifests.py``.

The chart, rendered with its defaults as a release named ``pairmark``. The tests hold the files against it.
"""

from pathlib import Path

from helm_python import Chart

DEPLOY = Path(__file__).parent


def manifests() -> dict[str, str]:
    """File name to text, for everything that the chart's defaults make."""
    chart = Chart.load(str(DEPLOY / "chart"))
    rendered = chart.render(name="pairmark", namespace="pairmark", revision=1)
    files = {Path(path).name: _without_digest(text) for path, text in rendered.items()}
    return {name: text for name, text in files.items() if name.endswith(".yaml") and text.strip()}


def _without_digest(text: str) -> str:
    """Without the digest of settings that starts new pods: kustomize does not compute one."""
    return "".join(f"{line}\n" for line in text.splitlines() if "checksum/settings" not in line)


if __name__ == "__main__":
    for name, text in manifests().items():
        (DEPLOY / "kubernetes" / name).write_text(text, encoding="utf-8")
