"""The command line: what it hands on, what it says when something is wrong, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import clusterwatt
from clusterwatt import cli
from clusterwatt.cli import settings
from clusterwatt.config.model import Config
from clusterwatt.config.problems import ConfigError, Problem
from clusterwatt.flight import bundle


class FakeApp(types.ModuleType):
    """In place of what runs the agent: notes what it is started with."""

    def __init__(self) -> None:
        super().__init__("clusterwatt.running")
        self.started: list[tuple[str, Config]] = []
        self.reload: Callable[[], Config] | None = None
        self.ends_with: BaseException | int = 0

    def run(self, config: Config, reload: Callable[[], Config]) -> int:
        self.reload = reload
        return self._end("run", config)

    def once(self, config: Config) -> int:
        return self._end("once", config)

    def _end(self, command: str, config: Config) -> int:
        self.started.append((command, config))
        if isinstance(self.ends_with, BaseException):
            raise self.ends_with
        return self.ends_with


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApp]:
    fake = FakeApp()
    monkeypatch.setitem(sys.modules, "clusterwatt.running", fake)
    monkeypatch.setattr(clusterwatt, "running", fake, raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield fake
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("CLUSTERWATT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(settings, "DEFAULT_FILE", str(tmp_path / "etc" / "clusterwatt.yaml"))
    monkeypatch.chdir(tmp_path)


def test_run_hands_on_what_flags_and_settings_say(app: FakeApp) -> None:
    argv = ["run", "--listen", "[::1]:0", "--root", "/host", "--simulate", "B200", "--log-level", "debug"]
    assert cli.main([*argv, "--set", "simulate.gpus=4", "--set", "simulate.seed=7"]) == 0
    ((command, config),) = app.started
    assert command == "run"
    assert (config.http.listen, config.node.root, config.log.level) == ("[::1]:0", "/host", "debug")
    assert (config.simulate.profile, config.simulate.gpus, config.simulate.seed) == ("b200", 4, 7)
    assert logging.getLogger().level == logging.DEBUG


def test_flags_go_before_everything_else(app: FakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERWATT_HTTP__LISTEN", ":1")
    assert cli.main(["once", "--listen", ":3", "--set", "http.listen=:2"]) == 0
    assert [config.http.listen for _, config in app.started] == [":3"]


@pytest.mark.parametrize("argv", [["once", "--simulate"], ["once", "--simulate", "--listen", ":0"]])
def test_simulate_without_a_profile_is_an_h100(app: FakeApp, argv: list[str]) -> None:
    assert cli.main(argv) == 0
    assert app.started[0][1].simulate.profile == "h100"


def test_the_status_of_the_agent_is_that_of_the_command(app: FakeApp) -> None:
    app.ends_with = 1
    assert cli.main(["run"]) == 1
    assert cli.main(["once"]) == 1


def test_the_file_is_the_one_named_else_that_of_the_environment_else_the_usual_one(
    app: FakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def expect(gpus: int, *argv: str) -> None:
        assert cli.main(["once", *argv]) == 0
        assert app.started[-1][1].node.gpus_expected == gpus

    for number, name in ((1, "named.yaml"), (2, "environment.yaml"), (3, "etc/clusterwatt.yaml")):
        expect(0)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"node: {{gpus_expected: {number}}}")
    expect(3)
    monkeypatch.setenv("CLUSTERWATT_CONFIG", "environment.yaml")
    expect(2)
    expect(1, "--config", "named.yaml")
    monkeypatch.setenv("CLUSTERWATT_CONFIG", "")
    expect(3)


def test_a_usual_file_that_cannot_be_looked_at_is_not_passed_over(
    app: FakeApp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that only root may enter: to go on with defaults would hide the operator's settings."""
    monkeypatch.setattr(settings, "DEFAULT_FILE", "loop/clusterwatt.yaml")
    Path("loop").symlink_to("loop")
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err.startswith("loop/clusterwatt.yaml: cannot be read: ")
    assert app.started == []


def test_a_reload_reads_everything_again(app: FakeApp, tmp_path: Path) -> None:
    path = tmp_path / "clusterwatt.yaml"
    path.write_text("node: {gpus_expected: 4}")
    assert cli.main(["run", "--config", "clusterwatt.yaml", "--set", "log.level=error"]) == 0
    path.write_text("node: {gpus_expected: 8}")
    assert app.reload is not None
    assert app.reload().node.gpus_expected == 8
    assert app.reload().log.level == "error"
    path.write_text("node: {gpus: 8}")
    with pytest.raises(ConfigError, match=r"^clusterwatt.yaml:1:8: node.gpus: unknown"):
        app.reload()


def test_a_start_and_a_reload_are_refused_with_the_lines_of_check_config(
    app: FakeApp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, book, web, counters = (
        tmp_path / name for name in ("c.yaml", "book.yaml", "web.yml", "counters.csv")
    )
    files = (
        f"feeds: {{price: {{book: {book}}}}}\n"
        f"http: {{web_config_file: {web}}}\n"
        f"expose: {{dcgm: {{enabled: true, counters_file: {counters}}}}}\n"
    )
    arguments = ["--config", str(path), "--set", "log.level=error"]
    path.write_text("log: {format: json}\n")
    assert cli.main(["run", *arguments]) == 0
    assert app.reload is not None
    counters.write_text("DCGM_FI_DEV_GPU_UTLI, gauge, x\n")
    for text in (f"log: {{format: xml}}\nnode: {{gpus: 8}}\n{files}", files):
        path.write_text(text)
        for broken in (None, "x: 1\n"):
            if broken is not None:
                book.write_text(broken)
                web.write_text(broken)
            capsys.readouterr()
            assert cli.main(["check-config", *arguments]) == 2
            told = capsys.readouterr().err
            assert len(told.splitlines()) >= 3
            assert told.startswith(f"{path}:") == (broken is None or "xml" in text)
            assert cli.main(["run", *arguments]) == 2
            assert capsys.readouterr().err == told
            with pytest.raises(ConfigError) as refused:
                app.reload()
            assert f"{refused.value}\n" == told
        book.unlink()
        web.unlink()


# --- check-config, metrics, help -----------------------------------------------------------------------


def test_mistakes_of_settings_and_of_the_price_book_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, file = tmp_path / "book.yaml", tmp_path / "c.yaml"
    zone = "electricity:\n  price_per_kwh: 0.2\n  time_zone: Europe/Berlni\n"
    book.write_text(f"as_of: 2026-01-01\ncurrency: EUR\n{zone}")
    file.write_text(f"log: {{level: loud}}\nfeeds: {{price: {{book: {book}}}}}\n")
    assert cli.main(["check-config", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert "log.level" in said
    assert "Europe/Berlni" in said


@pytest.mark.parametrize("name", ["feeds.price.book", "http.web_config_file"])
def test_a_missing_file_is_told_with_the_setting_that_names_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *sections, key = name.split(".")
    Path("c.yaml").write_text(
        "log: {level: info}\n"
        + "{".join(f"{each}: " for each in sections)
        + f"{{{key}: /nonexistent}}"
        + "}" * (len(sections) - 1)
        + "\n"
    )
    assert cli.main(["check-config", "--config", "c.yaml"]) == 2
    cannot = f"{name}: /nonexistent: cannot be read: No such file or directory\n"
    assert capsys.readouterr().err == f"c.yaml:2: {cannot}"
    assert cli.main(["check-config", "--set", f"{name}=/nonexistent"]) == 2
    assert capsys.readouterr().err == f"--set: {cannot}"


def test_what_keeps_an_agent_from_starting_is_told_with_the_setting_that_names_it(
    app: FakeApp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise ConfigError([Problem("/nonexistent", "", "cannot be read: No such file or directory")])

    monkeypatch.setattr("clusterwatt.running.run", refuse)
    assert cli.main(["run", "--set", "feeds.price.book=/nonexistent"]) == 2
    assert capsys.readouterr().err.startswith("--set: feeds.price.book: /nonexistent: cannot be read")


def test_check_config_prints_the_effective_configuration_and_where_it_was_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("c.yaml").write_text("node:\n  gpus_expected: 8\n")
    monkeypatch.setenv("CLUSTERWATT_LOG__LEVEL", "debug")
    assert cli.main(["check-config", "--config", "c.yaml", "--set", "training.directories=[/a]"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[:4] == [
        "# configuration file: c.yaml",
        "# node.gpus_expected: c.yaml:2",
        "# log.level: environment CLUSTERWATT_LOG__LEVEL",
        "# training.directories: --set",
    ]
    effective = yaml.safe_load(output.out)
    assert effective["node"].items() >= {"root": "/", "gpus_expected": 8}.items()
    assert effective["log"] == {"level": "debug", "format": "logfmt"}
    assert output.err == ""


def test_what_check_config_prints_is_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", "--simulate"]) == 0
    first = capsys.readouterr().out
    Path("c.yaml").write_text(first)
    assert cli.main(["check-config", "--config", "c.yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(first)


def test_print_defaults_looks_at_no_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", "--print-defaults", "--config", "none.yaml"]) == 0
    assert "#every_seconds: 1.0" in capsys.readouterr().out


def test_metrics_in_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["metrics"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "TYPE", "LEVEL", "LABELS", "HELP"]
    assert cli.main(["metrics", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    by_name = {metric["name"]: metric["higher_levels"] for metric in listed}
    assert by_name["clusterwatt_gpu_ecc_errors_total"] == {
        "standard": {"type": ["corrected"], "window": ["aggregate"]}
    }
    assert {"idle", "sync_boost"} <= set(by_name["clusterwatt_gpu_throttle_seconds_total"]["full"]["reason"])
    assert [row.split()[0] for row in rows] == [metric["name"] for metric in listed]
    assert cli.main(["metrics", "--format", "markdown"]) == 0
    page = capsys.readouterr().out
    assert all(f"| `{metric['name']}` |" in page for metric in listed)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, expected in ((["--help"], "check-config"), (["--version"], clusterwatt.__version__)):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


# --- The real command ----------------------------------------------------------------------------------


def command(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clusterwatt", *argv],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_does_not_load_the_agent() -> None:
    code = "import sys, clusterwatt.cli as c; c.parser().format_help(); print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"asyncio", "aiohttp", "yaml", "msgspec", "prometheus_client", "psutil", "pynvml", "logging"}
    assert not heavy & set(ended.stdout.split())


def test_the_command_ends_with_its_status_and_without_a_traceback() -> None:
    ended = command("check-config", CLUSTERWATT_LOG__LEVEL="loud")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("environment CLUSTERWATT_LOG__LEVEL: log.level: expected ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("argv", [["metrics"], ["check-config", "--print-defaults"]])
def test_a_reader_that_goes_away_gets_no_traceback(argv: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "clusterwatt", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, b"")


def test_flight_shows_a_bundle_and_refuses_what_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = bundle.Manifest(node="node-1", reason="gpu 3 lost", frozen_s=1_700_000_000.0)
    path = bundle.write(tmp_path, manifest, [])
    assert cli.main(["flight", str(path)]) == 0
    assert capsys.readouterr().out.startswith("node-1: gpu 3 lost; times are UTC\ntime")
    (tmp_path / "other.zip").write_bytes(b"")
    assert cli.main(["flight", str(tmp_path / "other.zip")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is no flight bundle" in said
