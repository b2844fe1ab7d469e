"""The Dockerfile by the rules that matter, and the lock files by what pyproject.toml asks for.

The image itself is built by `tests.tools.image`, which needs root and minutes.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
import shlex
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from clusterwatt.config.model import Http

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [
    (words[0], words[1] if len(words) > 1 else "")
    for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", TEXT)).splitlines()
    if (words := line.split(maxsplit=1))
]
LAST = INSTRUCTIONS[max(i for i, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :]
IN_LOCK = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; [^\\]+)? \\\n(?P<hashes>(?:    --hash=\S+.*\n)+)",
    re.MULTILINE,
)


def said(name: str) -> list[str]:
    return [text for known, text in LAST if known == name]


def locked(file: str) -> dict[str, set[str]]:
    text = (ROOT / file).read_text()
    found: dict[str, set[str]] = {}
    for match in IN_LOCK.finditer(text):
        found.setdefault(match["name"], set()).add(match["version"])
    assert sum(map(len, found.values())) == len(re.findall(r"^\w", text, re.MULTILINE))  # all are understood
    return found


def asked() -> tuple[list[Requirement], list[Requirement]]:
    """What the agent needs with all extras, and what its build needs."""
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")  # pytest has it
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    names = [
        *project["project"]["dependencies"],
        *(line for extra in ("training", "kubernetes", "auth") for line in extras[extra]),
    ]
    return [Requirement(name) for name in names], [
        Requirement(each) for each in project["build-system"]["requires"]
    ]


def test_it_runs_as_a_user_without_rights() -> None:
    assert said("USER") == ["10777:10777"]  # by number: Kubernetes' runAsNonRoot cannot look a name up


def test_no_base_image_is_the_newest_of_the_day() -> None:
    (base,) = [text for name, text in INSTRUCTIONS if name == "ARG" and text.startswith("BASE=")]
    _, _, tag = base.rpartition(":")
    assert tag
    assert tag != "latest"
    assert {text.split()[0] for name, text in INSTRUCTIONS if name == "FROM"} == {"${BASE}"}


def test_the_last_stage_gets_no_tools_for_packages() -> None:
    commands = " ".join(said("RUN"))
    assert "pip" not in commands
    assert "python3-venv" not in commands
    assert [text for text in said("COPY") if "--from=build" not in text] == []


def test_package_lists_stay_in_no_layer() -> None:
    for name, text in INSTRUCTIONS:
        if name == "RUN" and "apt-get install" in text:
            assert "--no-install-recommends" in text
            assert "apt-get update" in text.split("apt-get install")[0]
            assert "rm -rf /var/lib/apt/lists/*" in text


def test_every_wheel_is_checked_by_its_hash() -> None:
    installs = [
        text for name, text in INSTRUCTIONS if name == "RUN" for text in text.split("&&") if " -r " in text
    ]
    assert len(installs) == 2
    assert all("--require-hashes" in text for text in installs)
    for file in ("requirements.lock", "requirements-build.lock"):
        assert locked(file)


def test_nothing_is_added_from_the_network_nor_run_by_a_privileged_user_later() -> None:
    assert not [name for name, _ in INSTRUCTIONS if name == "ADD"]
    assert not re.search(r"\b(sudo|curl|wget)\b", TEXT)


def test_health_and_port_are_those_of_the_agent() -> None:
    port = Http().listen.rpartition(":")[2]
    assert said("EXPOSE") == [port]
    assert said("CMD") == [f'["run", "--listen", ":{port}"]']
    (health,) = said("HEALTHCHECK")
    assert f"http://127.0.0.1:{port}/healthz" in health
    assert "ProxyHandler({})" in health  # a proxy of the environment does not know this loopback


def test_what_is_copied_is_all_that_the_builder_is_sent() -> None:
    ignore = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignore
    sent = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        word
        for name, text in INSTRUCTIONS
        if name == "COPY" and "--from" not in text
        for word in shlex.split(text)[:-1]
    }
    assert copied == sent
    assert all((ROOT / name).exists() for name in sent)
    assert any(fnmatch.fnmatch("agent/clusterwatt/__pycache__", line) for line in ignore if "pycache" in line)


def test_the_lock_file_fits_what_is_asked_for() -> None:
    needs, builds = asked()
    for file, requirements in (("requirements.lock", needs), ("requirements-build.lock", builds)):
        found = locked(file)
        for requirement in requirements:
            versions = found.get(canonicalize_name(requirement.name), set())
            assert versions, f"{requirement.name} is not in {file}: make lock"
            for version in versions:
                assert requirement.specifier.contains(Version(version)), (
                    f"{requirement} against {version}: make lock"
                )
