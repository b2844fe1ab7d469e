"""The unit, its drop-ins and its installer, by systemd's own checks; none of it is started here."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from clusterwatt.config import load
from clusterwatt.config.model import SYSTEM_RELEASE_FILE
from tests.tools import apt

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNIT = DEPLOY / "clusterwatt.service"
DROP_INS = sorted((DEPLOY / "drop-ins").glob("*.conf"))
HIGHEST_EXPOSURE = 3.0


@pytest.fixture(scope="module")
def analyze() -> Path:
    """systemd's own checker of units."""
    path = apt.find("systemd-analyze")
    if path is None:
        pytest.skip("systemd-analyze is not here: `python -m tests.tools.apt systemd-analyze` fetches it")
    return path


def run(*command: str | Path, code: int = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def startable(folder: Path, *drop_ins: Path) -> Path:
    """The unit with a command that every machine has, since `verify` looks for it."""
    unit = folder / UNIT.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    beside = folder / f"{UNIT.name}.d"
    beside.mkdir()
    for drop_in in drop_ins:
        (beside / drop_in.name).write_text(drop_in.read_text())
    return unit


@pytest.mark.parametrize("drop_in", [None, *DROP_INS], ids=lambda path: path.stem if path else "none")
def test_systemd_finds_nothing_wrong(analyze: Path, tmp_path: Path, drop_in: Path | None) -> None:
    unit = startable(tmp_path, *([drop_in] if drop_in else []))
    said = run(analyze, "verify", "--man=no", unit)
    assert UNIT.name not in said, said


def test_a_mistake_in_the_unit_would_be_found(analyze: Path, tmp_path: Path) -> None:
    unit = startable(tmp_path)
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSystme="))
    assert "ProtectSystme" in run(analyze, "verify", "--man=no", unit)


def test_exposure_is_low(analyze: Path) -> None:
    said = run(analyze, "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= HIGHEST_EXPOSURE


def test_the_shipped_configuration_is_valid_and_names_the_systems_files() -> None:
    config = load.load(DEPLOY / "clusterwatt.yaml", {}, []).config
    assert config.ledger.path == "/var/lib/clusterwatt/ledger.db"
    assert config.recorder.directory == "/var/lib/clusterwatt/flight"
    assert config.collectors.maintenance.file == "/var/lib/clusterwatt/maintenance"
    assert config.driver.release_file == SYSTEM_RELEASE_FILE


def install(root: Path, *arguments: str, code: int = 0) -> list[str]:
    return run(DEPLOY / "install.sh", *arguments, "--root", root, code=code).splitlines()


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with an environment in place, whose pip does nothing."""
    python = tmp_path / "opt" / "clusterwatt" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    (python.parent / "clusterwatt").write_text("")
    (tmp_path / "opt" / "clusterwatt" / "pyvenv.cfg").write_text("")
    return tmp_path


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    said = install(tmp_path, "--dry-run")
    assert any(line.startswith("would run: install") for line in said)
    assert list(tmp_path.iterdir()) == []


def test_it_is_installed_once_and_kept_as_it_is(root: Path) -> None:
    install(root, "--listen", ":10777", "--drop-in", "nvme-health")
    config = root / "etc/clusterwatt/clusterwatt.yaml"
    assert load.load(config, {}, []).config.http.listen == ":10777"
    assert (root / "etc/systemd/system/clusterwatt.service.d/nvme-health.conf").exists()
    assert os.readlink(root / "usr/local/bin/clusterwatt") == "/opt/clusterwatt/bin/clusterwatt"
    config.write_text("log: {level: debug}\n")
    before = tree(root)
    said = install(root, "--drop-in", "nvme-health")
    assert tree(root) == before
    assert config.read_text() == "log: {level: debug}\n"
    assert not [line for line in said if line.startswith("written")]


def test_uninstall_keeps_what_is_the_sites(root: Path) -> None:
    install(root, "--drop-in", "ipmi")
    ledger = root / "var/lib/clusterwatt/ledger.db"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("books")
    own = root / "etc/systemd/system/clusterwatt.service.d/own.conf"
    own.write_text("[Service]\n")
    install(root, "uninstall", "--root", str(root))
    assert tree(root) == {
        "etc/clusterwatt/clusterwatt.env",
        "etc/clusterwatt/clusterwatt.yaml",
        "etc/systemd/system/clusterwatt.service.d/own.conf",
        "var/lib/clusterwatt/ledger.db",
    }
    install(root, "uninstall", "--purge")
    assert tree(root) == {"etc/systemd/system/clusterwatt.service.d/own.conf"}


def test_a_drop_in_that_the_site_has_changed_is_kept(root: Path) -> None:
    install(root, "--drop-in", "network")
    network = root / "etc/systemd/system/clusterwatt.service.d/network.conf"
    network.write_text("[Service]\nIPAddressAllow=10.0.0.0/8\n")
    said = install(root, "--drop-in", "network")
    assert "kept: /etc/systemd/system/clusterwatt.service.d/network.conf" in said
    install(root, "uninstall")
    assert network.read_text() == "[Service]\nIPAddressAllow=10.0.0.0/8\n"
    install(root, "uninstall", "--purge")
    assert not network.exists()


def test_variables_may_hold_a_password_of_a_proxy(root: Path) -> None:
    before = os.umask(0o077)  # the umask of a hardened root: the rest is for others to read all the same
    try:
        install(root)
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE((root / name).stat().st_mode)
        for name in ("etc/clusterwatt", "etc/clusterwatt/clusterwatt.env", "etc/clusterwatt/clusterwatt.yaml")
    }
    assert list(modes.values()) == [0o755, 0o600, 0o644]


@pytest.mark.parametrize("arguments", [(), ("--purge",)], ids=["uninstall", "purge"])
def test_files_of_running_jobs_outlive_the_agent(root: Path, arguments: tuple[str, ...]) -> None:
    install(root)
    job = root / "run/clusterwatt/jobs/slurm-1.gpu07"
    job.parent.mkdir(parents=True)
    job.write_text("job_id=1\n")
    (root / "run/clusterwatt/driver-release").write_text("")
    said = install(root, "uninstall", *arguments)
    assert tree(root / "run") == (set() if arguments else {"clusterwatt/jobs/slurm-1.gpu07"})
    assert ("kept: /run/clusterwatt/jobs, files of running jobs" in said) == (not arguments)
    job.unlink(missing_ok=True)
    install(root, "uninstall")
    assert not (root / "run/clusterwatt").exists()


def asked_of_pip(root: Path) -> list[str]:
    """Has the environment's Python write down what it is asked."""
    log = root / "asked"
    (root / "opt/clusterwatt/bin/python").write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    return log.read_text().splitlines() if log.exists() else []


def test_a_wheel_of_the_same_version_is_installed_too(root: Path) -> None:
    asked_of_pip(root)
    install(root)
    install(root, "--from", "/media/clusterwatt-0.1.0-py3-none-any.whl")
    asked = [line for line in asked_of_pip(root) if " install " in line]
    assert [line.rpartition("/")[2] for line in asked] == [
        "..[all]",
        *("clusterwatt-0.1.0-py3-none-any.whl",) * 2,
    ]
    assert ["--force-reinstall --no-deps" in line for line in asked] == [False, False, True]


def test_an_environment_without_pip_is_made_anew(root: Path) -> None:
    """As an upgrade of the system's Python leaves it: its packages lie in the folder of the old version."""
    python = root / "opt/clusterwatt/bin/python"
    python.write_text("#!/bin/sh\nexit 1\n")
    (line,) = [line for line in install(root, "--dry-run") if " -m venv " in line]
    assert line == f"would run: python3 -m venv --clear {root}/opt/clusterwatt"
    python.write_text("#!/bin/sh\nexit 0\n")
    assert not [line for line in install(root, "--dry-run") if " -m venv " in line]


def test_a_folder_that_is_not_ours_is_never_removed(tmp_path: Path) -> None:
    foreign = tmp_path / "opt/clusterwatt/data"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("not ours")
    install(tmp_path, "uninstall", "--purge")
    assert foreign.read_text() == "not ours"
    (line,) = [line for line in install(tmp_path, code=1) if line.startswith("install.sh:")]
    assert "not an environment of Python" in line


@pytest.mark.parametrize(
    "arguments",
    [("--purge",), ("--frobnicate",), ("--listen", "x;reboot"), ("--drop-in", "nothing"), ("--python",)],
    ids=" ".join,
)
def test_what_is_wrong_on_the_command_line_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [DEPLOY / "install.sh", "--root", tmp_path, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_the_installer_may_be_run() -> None:
    assert (DEPLOY / "install.sh").stat().st_mode & stat.S_IXUSR
