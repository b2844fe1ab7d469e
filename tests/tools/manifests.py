"""`python -m tests.tools.manifests`: write deploy/kubernetes/manifests from the chart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.tools import helm

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
CHART, FOLDER = KUBERNETES / "chart", KUBERNETES / "manifests"
HEADER = (
    "# Rendered from deploy/kubernetes/chart: change the chart, then `python -m tests.tools.manifests`.\n"
)
OPERATOR = ("podMonitor.enabled=true", "networkPolicy.enabled=true")
SOURCE = re.compile(r"^---\n# Source: clusterwatt/templates/(\S+)\.yaml\n", re.MULTILINE)
# Helm is not what manages an object that kubectl has applied.
OF_HELM = re.compile(r"^ *app\.kubernetes\.io/managed-by: Helm\n", re.MULTILINE)


def rendered() -> Mapping[str, str]:
    """Text by path below the folder: the base, and what Prometheus' operator is given beside it."""
    base = _files(helm.template(CHART))
    more = _files(helm.template(CHART, *OPERATOR))
    files = {f"base/{name}.yaml": text for name, text in base.items()}
    for name in sorted(more.keys() - base.keys()):
        files[f"operator/{name}.yaml"] = more[name]
    return files


def _files(text: str) -> dict[str, str]:
    """The objects of each template in one text."""
    files: dict[str, str] = {}
    _, *parts = SOURCE.split(OF_HELM.sub("", text))
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        before = files.get(name)
        files[name] = f"{before}---\n{part.strip()}\n" if before else f"{HEADER}{part.strip()}\n"
    return files


def main() -> None:
    """Write them."""
    for path, text in rendered().items():
        target = FOLDER / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        print(target)


if __name__ == "__main__":
    main()
