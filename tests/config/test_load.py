"""Loading: what counts, in which order, and what is said about everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from clusterwatt.config.load import ALL_SETTINGS, MAX_PROBLEMS, Loaded, load
from clusterwatt.config.model import Collectors, Config
from clusterwatt.config.problems import ConfigError
from clusterwatt.inventory import CATALOG

SECTIONS = ", ".join(Config.__struct_fields__)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to write a configuration to; messages name it `clusterwatt.yaml`."""
    monkeypatch.chdir(tmp_path)
    return Path("clusterwatt.yaml")


def refused(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    sets: Sequence[str] = (),
    families: Sequence[str] = (),
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {}, sets, families=families)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    return lines


def refused_text(path: Path, text: str, families: Sequence[str] = ()) -> list[str]:
    path.write_text(text)
    return refused(path, families=families)


# --- Order and origin ----------------------------------------------------------------------------------


def test_without_any_source_everything_is_at_its_default() -> None:
    assert load(None, {}, []) == Loaded(Config(), {})


def test_file_then_environment_then_set_then_flag(written: Path) -> None:
    written.write_text(
        "collectors:\n"
        "  gpu: {every_seconds: 2}\n"
        "  cpu: {every_seconds: 2}\n"
        "  rdma: {every_seconds: 2}\n"
        "  disk:\n"
        "    every_seconds: 2\n"
    )
    environ = {
        "CLUSTERWATT_COLLECTORS__GPU__EVERY_SECONDS": "3",
        "CLUSTERWATT_COLLECTORS__CPU__EVERY_SECONDS": "3",
        "CLUSTERWATT_COLLECTORS__RDMA__EVERY_SECONDS": "3",
        "HOME": "/root",
    }
    sets = ["collectors.gpu.every_seconds=4", "collectors.cpu.every_seconds=4"]
    loaded = load(written, environ, sets, flags={"--gpu-every": ("collectors.gpu.every_seconds", "5")})
    collectors = loaded.config.collectors
    assert collectors.gpu.every_seconds == 5
    assert collectors.cpu.every_seconds == 4
    assert collectors.rdma.every_seconds == 3
    assert collectors.disk.every_seconds == 2
    assert collectors.memory.every_seconds == 1
    assert loaded.sources == {
        "collectors.gpu.every_seconds": "--gpu-every",
        "collectors.cpu.every_seconds": "--set",
        "collectors.rdma.every_seconds": "environment CLUSTERWATT_COLLECTORS__RDMA__EVERY_SECONDS",
        "collectors.disk.every_seconds": "clusterwatt.yaml:6",
    }


def test_the_last_of_two_sets_counts() -> None:
    assert load(None, {}, ["node.gpus_expected=4", "node.gpus_expected=8"]).config.node.gpus_expected == 8


def test_a_section_set_as_a_whole_changes_only_what_it_names(written: Path) -> None:
    written.write_text("collectors: {gpu: {every_seconds: 2}}")
    gpu = load(written, {}, ["collectors.gpu={enabled: false}"]).config.collectors.gpu
    assert (gpu.enabled, gpu.every_seconds) == (False, 2)


def test_an_empty_section_means_its_defaults(written: Path) -> None:
    written.write_text("collectors:\n  gpu:\n  cpu: ~\nlog: null\n")
    assert load(written, {}, []).config == Config()
    written.write_text("collectors: {gpu: {every_seconds: 2}}")
    loaded = load(written, {"CLUSTERWATT_COLLECTORS__GPU": ""}, [])
    assert loaded == Loaded(Config(), {})


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "---\n", "{}", "null", "\ufeff", "\ufefflog: {level: info}"]
)
def test_a_file_may_be_empty(written: Path, text: str) -> None:
    written.write_text(text, encoding="utf-8")
    assert load(written, {}, []).config == Config()


def test_a_text_on_the_command_line_is_taken_as_it_is_written() -> None:
    sets = ["http.listen=[::1]:10777", "collectors.disk.exclude=*loop|[a-z]#"]
    with pytest.raises(ConfigError, match="nothing to repeat"):
        load(None, {}, sets)
    sets = ["http.listen=[::1]:10777", "collectors.disk.exclude=[a-z]#: .*", "node.root='/a b'"]
    config = load(
        None, {"CLUSTERWATT_SIMULATE__FAULTS_FILE": "", "CLUSTERWATT_LOG__LEVEL": "error"}, sets
    ).config
    assert config.http.listen == "[::1]:10777"
    assert config.collectors.disk.exclude == "[a-z]#: .*"
    assert config.node.root == "/a b"
    assert config.simulate.faults_file == ""
    assert config.log.level == "error"


def test_lists_and_names_from_the_environment() -> None:
    environ = {
        "CLUSTERWATT_TRAINING__DIRECTORIES": "[/a, /b]",
        "CLUSTERWATT_LIMITS__FAMILIES": "{gpu_power_watts: false}",
        "CLUSTERWATT_LIMITS__FAMILIES__GPU_FAN_SPEED_RATIO": "true",
    }
    config = load(None, environ, ["limits.families.clusterwatt_load1=no"]).config
    assert config.training.directories == ("/a", "/b")
    assert config.limits.families == {
        "gpu_power_watts": False,
        "gpu_fan_speed_ratio": True,
        "clusterwatt_load1": False,
    }


def test_aliases_are_the_same_value_again(written: Path) -> None:
    written.write_text("collectors:\n  gpu: &rare {every_seconds: 9}\n  cpu: *rare\n")
    collectors = load(written, {}, []).config.collectors
    assert collectors.gpu.every_seconds == collectors.cpu.every_seconds == 9


# --- Names ---------------------------------------------------------------------------------------------


def test_g43_a_misspelt_key_is_refused_with_key_and_line(written: Path) -> None:
    assert refused_text(written, "poll_intervall: 5s\nnode: {gpus_expected: 8}\n") == [
        f"clusterwatt.yaml:1:1: poll_intervall: unknown; known here: {SECTIONS}"
    ]


def test_g43_comments_and_blank_lines_between_entries_change_nothing(written: Path) -> None:
    written.write_text(
        "limits:\n  families:\n    gpu_power_watts: true\n\n    # noisy\n    gpu_fan_speed_ratio: false\n"
    )
    families = load(written, {}, []).config.limits.families
    assert families == {"gpu_power_watts": True, "gpu_fan_speed_ratio": False}


def test_g43_a_duplicate_key_is_refused_with_both_lines(written: Path) -> None:
    text = "node:\n  root: /\nlog: {}\nnode:\n  gpus_expected: 8\n"
    assert refused_text(written, text) == ["clusterwatt.yaml:4:1: node: given twice, first on line 1"]
    text = "limits:\n  families:\n    load1: true\n    load1: false\n"
    assert refused_text(written, text) == [
        "clusterwatt.yaml:4:5: limits.families.load1: given twice, first on line 3"
    ]


def test_an_unknown_key_names_the_nearest(written: Path) -> None:
    text = "collectors:\n  gpu:\n    every_second: 5\n  infiniband: {}\nhttps: {}\n"
    assert refused_text(written, text) == [
        "clusterwatt.yaml:3:5: collectors.gpu.every_second: unknown; did you mean every_seconds?",
        "clusterwatt.yaml:4:3: collectors.infiniband: unknown; known here: "
        + ", ".join(Collectors.__struct_fields__),
        "clusterwatt.yaml:5:1: https: unknown; did you mean http?",
    ]


def test_a_section_in_the_wrong_place_is_shown_its_place(written: Path) -> None:
    assert refused_text(written, "gpu: {every_seconds: 1}") == [
        "clusterwatt.yaml:1:1: gpu: unknown; did you mean collectors.gpu?"
    ]


def test_an_unknown_variable_names_the_nearest() -> None:
    environ = {
        "CLUSTERWATT_COLLECTORS__GPU__EVERY_SECOND": "1",
        "CLUSTERWATT_HTTP_LISTEN": ":1",
        "CLUSTERWATT_PORT": "9100",
    }
    assert refused(environ=environ) == [
        (
            "environment CLUSTERWATT_COLLECTORS__GPU__EVERY_SECOND: unknown setting; "
            "did you mean CLUSTERWATT_COLLECTORS__GPU__EVERY_SECONDS?"
        ),
        "environment CLUSTERWATT_HTTP_LISTEN: unknown setting; did you mean CLUSTERWATT_HTTP__LISTEN?",
        f"environment CLUSTERWATT_PORT: unknown setting; {ALL_SETTINGS}",
    ]


def test_variables_of_a_kubernetes_service_of_our_name_are_no_settings() -> None:
    """A service called clusterwatt (or clusterwatt-page) puts these into every pod of its namespace."""
    environ = {
        "CLUSTERWATT_CONFIG": "/etc/clusterwatt.yaml",
        "CLUSTERWATT_SERVICE_HOST": "10.96.0.7",
        "CLUSTERWATT_SERVICE_PORT": "10777",
        "CLUSTERWATT_SERVICE_PORT_METRICS": "10777",
        "CLUSTERWATT_PORT": "tcp://10.96.0.7:10777",
        "CLUSTERWATT_PORT_10777_TCP": "tcp://10.96.0.7:10777",
        "CLUSTERWATT_PORT_10777_TCP_PROTO": "tcp",
        "CLUSTERWATT_PORT_10777_TCP_PORT": "10777",
        "CLUSTERWATT_PORT_10777_TCP_ADDR": "10.96.0.7",
        "CLUSTERWATT_PAGE_PORT": "tcp://10.96.0.7:10777",
        "CLUSTERWATT_PAGE_SERVICE_HOST": "10.96.0.7",
    }
    assert load(None, environ, []).config == Config()


def test_unknown_paths_and_texts_that_are_no_assignment_on_the_command_line() -> None:
    assert refused(sets=["log.leval=info", "log.level.x=1", "node", "=1"]) == [
        "--set: log.leval: unknown; did you mean level?",
        "--set: log.level.x: log.level is one value, with nothing below it",
        '--set: expected path=value, got "node"',
        '--set: expected path=value, got "=1"',
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpu_temp", "did you mean gpu_temperature_celsius?"),
        ("clusterwatt_gpu_temp", "did you mean gpu_temperature_celsius?"),
        ("gpu_power_watts_total", "did you mean gpu_power_watts?"),
        ("node_load1", "did you mean load1?"),
        ("DCGM_FI_DEV_GPU_UTIL", "`clusterwatt metrics` lists all"),
    ],
)
def test_an_unknown_family_has_a_hint_whatever_it_is(name: str, hint: str) -> None:
    known = [metric.name for metric in CATALOG]
    (line,) = refused(sets=[f"limits.families.{name}=yes"], families=known)
    assert line == f"--set: limits.families.{name}: unknown; {hint}"


def test_families_are_held_against_the_catalogue(written: Path) -> None:
    text = "limits:\n  families:\n    clusterwatt_gpu_power_watts: true\n    gpu_powr_watts: true\n"
    known = ["gpu_power_watts", "load1"]
    assert refused_text(written, text, known) == [
        "clusterwatt.yaml:4:5: limits.families.gpu_powr_watts: unknown; did you mean gpu_power_watts?"
    ]
    assert refused(sets=["limits.families.load=yes"], families=known) == [
        "--set: limits.families.load: unknown; did you mean load1?"
    ]
    written.write_text("limits: {families: {no_such_thing: true}}")
    assert load(written, {}, []).config.limits.families == {"no_such_thing": True}


def test_merge_keys_are_refused_by_name(written: Path) -> None:
    text = "collectors:\n  gpu: &a {every_seconds: 2}\n  cpu:\n    <<: *a\n"
    assert refused_text(written, text) == [
        "clusterwatt.yaml:4:5: collectors.cpu.<<: merge keys are not supported; write the settings out"
    ]


# --- Values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1.4", '"1.4"', "'1.4'", "1.4e0", "+1.4"])
def test_g40_a_number_may_be_given_as_text(written: Path, text: str) -> None:
    written.write_text(f"driver: {{retry_seconds: {text}}}")
    value = load(
        written, {"CLUSTERWATT_DRIVER__GRACE_SECONDS": text}, [f"driver.deadline_seconds={text}"]
    ).config
    assert value.driver.retry_seconds == value.driver.grace_seconds == value.driver.deadline_seconds == 1.4


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("0", "0"),
        ("-1", "-1"),
        ("60.5", "60.5"),
        ('"1,4"', '"1,4"'),
        ("1_4", '"1_4"'),
        (".nan", '".nan"'),
        ("nan", '"nan"'),
        (".inf", '".inf"'),
        ("1e999", "1e999"),
        ("infinity", '"infinity"'),
        ("5s", '"5s"'),
        ("1:30", '"1:30"'),
        ("0x10", '"0x10"'),
        ("true", '"true"'),
        ("", "nothing"),
        ("~", "nothing"),
        ("[1]", "a list"),
        ("{a: 1}", "a mapping"),
        ("!!python/name:os.system", "the tag !!python/name:os.system"),
        ("!seconds 5", "the tag !seconds"),
        ('"5\\n"', '"5\\n"'),
        ("\u0661", '"\u0661"'),
    ],
)
def test_g40_what_is_no_number_or_out_of_range_is_refused_with_the_range(
    written: Path, text: str, got: str
) -> None:
    assert refused_text(written, f"driver:\n  retry_seconds: {text}\n") == [
        f"clusterwatt.yaml:2:3: driver.retry_seconds: expected a number > 0 and <= 60, got {got}"
    ]


@pytest.mark.parametrize("text", ["8.0", "1.5", "0x10", "true", "-1", "1025", "9" * 5000, "eight"])
def test_a_whole_number_is_whole_and_in_range(written: Path, text: str) -> None:
    (line,) = refused_text(written, f"node:\n  gpus_expected: {text}\n")
    expected = "clusterwatt.yaml:2:3: node.gpus_expected: expected a whole number from 0 to 1024, got "
    assert line.startswith(expected)
    assert len(line) < 200


def test_a_leading_zero_does_not_make_a_number_octal(written: Path) -> None:
    written.write_text("node: {gpus_expected: 010}")
    assert load(written, {}, []).config.node.gpus_expected == 10


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("yes", True), ('"on"', True), ("False", False), ("off", False)]
)
def test_truth(written: Path, text: str, value: bool) -> None:
    written.write_text(f"driver: {{kill_hung: {text}}}")
    assert load(written, {}, []).config.driver.kill_hung is value


@pytest.mark.parametrize("text", ["1", "0", "maybe", "", "[true]"])
def test_a_number_is_not_a_truth(written: Path, text: str) -> None:
    (line,) = refused_text(written, f"driver:\n  kill_hung: {text}\n")
    assert line.startswith("clusterwatt.yaml:2:3: driver.kill_hung: expected true or false, got ")


@pytest.mark.parametrize("text", ["h100", "H100", '"H100"'])
def test_the_case_of_a_profile_does_not_matter(written: Path, text: str) -> None:
    written.write_text(f"simulate: {{profile: {text}}}")
    assert load(written, {}, []).config.simulate.profile == "h100"


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    assert refused(sets=["simulate.profile=h9", "limits.profile=no"]) == [
        '--set: simulate.profile: expected "", a100, b200, gb200, h100, h200, l40s, rtx4080 or t4, got "h9"',
        '--set: limits.profile: expected full, minimal or standard, got "no"',
    ]


def test_text_that_yaml_takes_for_something_else_stays_text(written: Path) -> None:
    written.write_text(
        "collectors:\n  ethernet: {include: no, exclude: 010}\n  disk: {exclude: 2026-01-01}\n"
    )
    collectors = load(written, {}, []).config.collectors
    assert (collectors.ethernet.include, collectors.ethernet.exclude) == ("no", "010")
    assert collectors.disk.exclude == "2026-01-01"


@pytest.mark.parametrize("text", ['"a\\0b"', '"a\\nb"', '"\\ud800"', '"\\x7f"'])
def test_text_with_control_characters_is_refused(written: Path, text: str) -> None:
    (line,) = refused_text(written, f"node:\n  root: {text}\n")
    assert line.startswith("clusterwatt.yaml:2:3: node.root: expected text that is not empty, got ")
    assert line.endswith("it holds control characters or is not UTF-8")


def test_a_root_that_is_not_utf8_is_refused() -> None:
    environ = {"CLUSTERWATT_NODE__ROOT": os.fsdecode(b"/\xff")}
    (line,) = refused(environ=environ)
    assert line.startswith("environment CLUSTERWATT_NODE__ROOT: node.root: expected text")
    line.encode()


def test_patterns_are_compiled(written: Path) -> None:
    text = (
        "collectors:\n  ethernet:\n    include: eth[0-9\n    exclude: '[[a]'\n"
        "  filesystem:\n    exclude_mountpoints: '*'\n"
    )
    first, second = refused_text(written, text)
    assert first == (
        "clusterwatt.yaml:3:5: collectors.ethernet.include: expected a regular expression, "
        'got "eth[0-9": unterminated character set at position 3'
    )
    assert second.startswith(
        "clusterwatt.yaml:6:5: collectors.filesystem.exclude_mountpoints: expected a regular"
    )


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:0",
        ":10777",
        "[::1]:1",
        "0.0.0.0:65535",
        "localhost:80",
        "node-7.example.org:80",
        "[fe80::1%eth0]:1",
    ],
)
def test_addresses(written: Path, text: str) -> None:
    written.write_text(f"http: {{listen: '{text}'}}")
    assert load(written, {}, []).config.http.listen == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10777", "there is no port from 0 to 65535 behind the last colon"),
        ("localhost", "there is no port from 0 to 65535 behind the last colon"),
        ("localhost:", "there is no port from 0 to 65535 behind the last colon"),
        (":65536", "there is no port from 0 to 65535 behind the last colon"),
        (":http", "there is no port from 0 to 65535 behind the last colon"),
        ("::1:80", "an IPv6 address stands in brackets, as in [::1]:10777"),
        ("300.0.0.1:80", "Octet 300 (> 255) not permitted in '300.0.0.1'"),
        ("[::g]:80", "Only hex digits permitted in 'g' in '::g'"),
        ("http://127.0.0.1:80", "leave out http:// and what follows the port"),
        ("*:80", "the host is neither an address nor a name"),
        ("a b:80", "the host is neither an address nor a name"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text: str, reason: str) -> None:
    (line,) = refused(sets=[f"http.listen='{text}'"])
    assert line.startswith("--set: http.listen: expected an address such as 127.0.0.1:10777, got ")
    assert line.endswith(f'"{text}": {reason}')


def test_entries_of_a_list_are_named_with_their_line(written: Path) -> None:
    text = "collectors:\n  filesystem:\n    network_mounts:\n      - /a\n      - [b]\n      -\n"
    assert refused_text(written, text) == [
        "clusterwatt.yaml:5:9: collectors.filesystem.network_mounts[1]: expected text, got a list",
        "clusterwatt.yaml:6:8: collectors.filesystem.network_mounts[2]: expected text, got nothing",
    ]
    assert refused_text(written, "training: {directories: /logs}") == [
        (
            "clusterwatt.yaml:1:12: training.directories: "
            'expected a list, each entry text that is not empty, got "/logs"'
        )
    ]


def test_a_value_in_place_of_a_section(written: Path) -> None:
    assert refused_text(written, "node: 5\nlog: [a]\nlimits: {families: [load1]}\n") == [
        "clusterwatt.yaml:1:1: node: expected a section of settings, got 5",
        "clusterwatt.yaml:2:1: log: expected a section of settings, got a list",
        "clusterwatt.yaml:3:10: limits.families: expected names, each with true or false, got a list",
    ]


# --- Settings beside each other ------------------------------------------------------------------------


def test_mistakes_and_contradictions_are_told_at_once(written: Path) -> None:
    text = (
        "collectors:\n"
        "  gpu: {every_seconds: 40, slow_seconds: 30}\n"
        "  cpu: {every_second: 1}\n"
        "driver: {silent_seconds: soon}\n"
        "node: {power_feed_ratios: {A: 0.9, B: 0.9}, root: [/]}\n"
        "training: {directories: [/a, {}], job_from_path: '/([0-9]+)/'}\n"
        "simulate: {faults_file: x.json, profil: h100}\n"
    )
    told = [line.split(": ")[:2] for line in refused_text(written, text)]
    assert sorted(told) == [
        ["clusterwatt.yaml:2:28", "collectors.gpu.slow_seconds"],
        ["clusterwatt.yaml:3:9", "collectors.cpu.every_second"],
        [
            "clusterwatt.yaml:4:10",
            "driver.silent_seconds",
        ],  # not also that it is too short beside every_seconds
        ["clusterwatt.yaml:5:28", "node.power_feed_ratios"],
        ["clusterwatt.yaml:5:45", "node.root"],
        ["clusterwatt.yaml:6:30", "training.directories[1]"],
        ["clusterwatt.yaml:6:35", "training.job_from_path"],
        ["clusterwatt.yaml:7:33", "simulate.profil"],  # not also that there are no faults without one
    ]


def test_settings_that_contradict_each_other_are_refused_where_they_were_set(written: Path) -> None:
    text = (
        "collectors:\n  gpu:\n    every_seconds: 40\n    slow_seconds: 30\nsimulate: {faults_file: x.json}\n"
    )
    assert refused_text(written, text) == [
        (
            "clusterwatt.yaml:4:5: collectors.gpu.slow_seconds: "
            "expected at least collectors.gpu.every_seconds (40), got 30"
        ),
        (
            "clusterwatt.yaml:3:5: driver.silent_seconds: expected more than collectors.gpu.every_seconds "
            "(40), got 15: a driver host that reads so rarely would be taken for dead"
        ),
        (
            "clusterwatt.yaml:5:12: simulate.faults_file: "
            "faults are played on a simulated driver only: set simulate.profile"
        ),
    ]
    written.write_text(text)
    assert load(written, {}, ["collectors.gpu=", "simulate.profile=t4"]).config.simulate.gpus == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "node: {power_feed_ratios: {A: 0.7, B: 0.7}}",
            "clusterwatt.yaml:1:28: node.power_feed_ratios: expected a sum of at most 1, got 1.4",
        ),
        (
            "node:\n  power_feed_ratios: {A: 0.4}\n  power_feed_capacity_watts:\n    B: 5\n",
            (
                "clusterwatt.yaml:4:5: node.power_feed_capacity_watts: B is no feed of the node: "
                "node.power_feed_ratios does not name it"
            ),
        ),
    ],
)
def test_settings_of_many_keys_that_contradict_are_refused_at_one_of_them(
    text: str, expected: str, written: Path
) -> None:
    assert refused_text(written, text) == [expected]


def test_they_are_refused_from_the_command_line_as_well() -> None:
    with pytest.raises(ConfigError, match=r"node\.power_feed_ratios: expected a sum of at most 1, got 1\.4"):
        load(None, {}, ["node.power_feed_ratios={A: 0.7, B: 0.7}"])


# --- Everything at once --------------------------------------------------------------------------------


def test_all_sources_report_all_their_problems_at_once(written: Path) -> None:
    written.write_text("node: {gpus_expected: many}\nlog: {level: loud, format: xml}\n")
    lines = refused(written, {"CLUSTERWATT_DRIVER__KILL_HUNG": "perhaps"}, ["http.max_connections=0"])
    assert [line.partition(": expected")[0] for line in lines] == [
        "clusterwatt.yaml:1:8: node.gpus_expected",
        "clusterwatt.yaml:2:7: log.level",
        "clusterwatt.yaml:2:20: log.format",
        "environment CLUSTERWATT_DRIVER__KILL_HUNG: driver.kill_hung",
        "--set: http.max_connections",
    ]


def test_a_file_without_end_of_mistakes_does_not_flood_the_terminal(written: Path) -> None:
    lines = refused_text(written, "".join(f"key{number}: 1\n" for number in range(2_000)))
    assert len(lines) == MAX_PROBLEMS + 1
    assert lines[-1] == f"there may be more than these {MAX_PROBLEMS} problems"


def test_keys_that_are_no_names(written: Path) -> None:
    assert refused_text(written, '? [a]\n: b\n? "x\\ny"\n: c\n5: d\n') == [
        "clusterwatt.yaml:1:3: expected a name, got a list",
        f"clusterwatt.yaml:3:3: x\\ny: unknown; known here: {SECTIONS}",
        f"clusterwatt.yaml:5:1: 5: unknown; known here: {SECTIONS}",
    ]


def test_a_port_without_its_number_is_refused(written: Path) -> None:
    text = "collectors:\n  rdma:\n    expected_ports: [mlx5_0/1, mlx5_1]\n"
    (problem,) = refused_text(written, text)
    assert problem.startswith("clusterwatt.yaml:3:32: collectors.rdma.expected_ports")
    assert 'a port such as mlx5_0/1, got "mlx5_1"' in problem


def test_the_revision_of_an_image_is_no_setting() -> None:
    assert load(None, {"CLUSTERWATT_REVISION": "3f2a9c1"}, []).config == Config()


def test_the_root_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths below it are compared with those of the kernel, which has neither `..` nor links in them."""
    (tmp_path / "host").mkdir()
    (tmp_path / "link").symlink_to("host")
    monkeypatch.chdir(tmp_path / "host")
    for root in ("../host", ".", "../link", str(tmp_path / "link")):
        assert load(None, {}, [f"node.root={root}"]).config.node.root == str(tmp_path / "host")
    assert load(None, {}, ["node.root=../../../../../../../../.."]).config.node.root == "/"
