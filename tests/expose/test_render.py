from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Metric, Table
from clusterwatt.expose.render import Renderer
from clusterwatt.readings.agent import CollectorDuration, TextFamily
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo, GpuPower, GpuUse
from clusterwatt.readings.host import BlockedProcesses
from clusterwatt.readings.network import Network
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.storage import Filesystem
from tests.expose.reference import ReferenceRenderer

A = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"
B = "GPU-bbbbbbbb-0000-0000-0000-00000000000b"

USE = Table(GpuUse, ("gpu", "uuid"))
INFO = Table(GpuInfo, ("gpu", "uuid", "name", "serial"))
POWER = Table(GpuPower, ("gpu", "uuid", "scope", "kind"))
NETWORK = Table(
    Network, ("device",), row_level=LevelBy("kind", {"physical": CORE, "bond": CORE, "virtual": FULL})
)
FILESYSTEM = Table(Filesystem, ("mountpoint", "fstype"))
PASSES = Table(CollectorDuration, ("collector",))
BLOCKED = Table(BlockedProcesses)

CATALOG = (
    INFO.info("gpu_info", "Identity of a GPU."),
    USE.gauge("gpu_utilization_ratio", "Share of time in which a kernel ran.", "utilization_ratio", STANDARD),
    POWER.gauge(
        "gpu_power_watts", "Power.", "power_watts", by=LevelBy("scope", {"gpu": STANDARD, "module": FULL})
    ),
    NETWORK.counter("network_receive_bytes_total", "Bytes received.", "receive_bytes"),
    FILESYSTEM.gauge("filesystem_size_bytes", 'Size, as in \\ "df"\n.', "size_bytes"),
    PASSES.summary("collector_duration_seconds", "Passes.", "duration_sum_seconds", "passes", STANDARD),
    BLOCKED.gauge("blocked_processes", "Processes in uninterruptible sleep.", "processes"),
)


def snapshot(*readings: Reading) -> Snapshot:
    by_type: dict[type[Reading], tuple[Reading, ...]] = {}
    for reading in readings:
        by_type[type(reading)] = (*by_type.get(type(reading), ()), reading)
    return Snapshot(1, 1_700_000_000.0, 1000.0, by_type)


def page(
    *readings: Reading,
    catalog: tuple[Metric, ...] = CATALOG,
    profile: str = "full",
    families: dict[str, bool] | None = None,
    openmetrics: bool = False,
) -> str:
    renderer = Renderer(catalog, profile, families or {}, 10_000)
    return renderer.render(snapshot(*readings), openmetrics=openmetrics).body.decode()


def series(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def openmetrics_families(text: str) -> Iterator[Family]:
    families: Iterator[Family] = openmetrics_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # has no hints
    return families


def gpu_info(gpu: str, uuid: str, name: str, serial: str = "N/A") -> GpuInfo:
    return GpuInfo(gpu, uuid, name, "ada", "0000:01:00.0", gpu, serial, "95.04", "", "", "false")


def test_the_whole_text_page() -> None:
    text = page(
        GpuUse("0", A, 0.37),
        Network("eth0", "physical", receive_bytes=12345678.0),
        CollectorDuration("gpu", 1.5, 3.0),
        BlockedProcesses(0.0, 0.0),
    )
    assert text == (
        "# HELP clusterwatt_gpu_utilization_ratio Share of time in which a kernel ran.\n"
        "# TYPE clusterwatt_gpu_utilization_ratio gauge\n"
        f'clusterwatt_gpu_utilization_ratio{{gpu="0",uuid="{A}"}} 0.37\n'
        "# HELP clusterwatt_network_receive_bytes_total Bytes received.\n"
        "# TYPE clusterwatt_network_receive_bytes_total counter\n"
        'clusterwatt_network_receive_bytes_total{device="eth0"} 1.2345678e+07\n'
        "# HELP clusterwatt_collector_duration_seconds Passes.\n"
        "# TYPE clusterwatt_collector_duration_seconds summary\n"
        'clusterwatt_collector_duration_seconds_count{collector="gpu"} 3.0\n'
        'clusterwatt_collector_duration_seconds_sum{collector="gpu"} 1.5\n'
        "# HELP clusterwatt_blocked_processes Processes in uninterruptible sleep.\n"
        "# TYPE clusterwatt_blocked_processes gauge\n"
        "clusterwatt_blocked_processes 0.0\n"
    )


def test_an_openmetrics_counter_has_its_suffix_on_the_samples_only_and_the_page_ends() -> None:
    text = page(Network("eth0", "physical", receive_bytes=5.0), openmetrics=True)
    assert text == (
        "# HELP clusterwatt_network_receive_bytes Bytes received.\n"
        "# TYPE clusterwatt_network_receive_bytes counter\n"
        'clusterwatt_network_receive_bytes_total{device="eth0"} 5.0\n'
        "# EOF\n"
    )


def test_an_identity_has_the_same_series_name_in_both_formats() -> None:
    line = f'clusterwatt_gpu_info{{gpu="0",name="NVIDIA L4",serial="N/A",uuid="{A}"}} 1.0'
    for openmetrics in (False, True):
        text = page(gpu_info("0", A, "NVIDIA L4"), openmetrics=openmetrics)
        assert series(text) == [line]
        assert "# TYPE clusterwatt_gpu_info gauge\n" in text


def test_a_page_without_readings_has_no_headers() -> None:
    assert page() == ""
    assert page(openmetrics=True) == "# EOF\n"


def test_what_is_absent_has_no_series_and_zero_has() -> None:
    text = page(GpuUse("0", A, None), GpuUse("1", B, 0.0))
    assert series(text) == [f'clusterwatt_gpu_utilization_ratio{{gpu="1",uuid="{B}"}} 0.0']
    assert page(GpuUse("0", A, None)) == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_a_value_that_is_no_number_has_no_series(value: float) -> None:
    assert page(GpuUse("0", A, value)) == ""


def test_half_a_summary_does_not_go_out() -> None:
    assert page(CollectorDuration("gpu", float("nan"), 3.0)) == ""


def test_profiles_and_single_families_decide_what_goes_out() -> None:
    readings = (
        GpuUse("0", A, 0.5),
        GpuPower("0", A, "gpu", "average", 300.0),
        GpuPower("0", A, "module", "average", 500.0),
        Network("eth0", "physical", receive_bytes=1.0),
        Network("veth0", "virtual", receive_bytes=2.0),
    )

    def names(profile: str, families: dict[str, bool] | None = None) -> list[str]:
        return [line.split("{")[0] for line in series(page(*readings, profile=profile, families=families))]

    network, use, power = (
        "clusterwatt_network_receive_bytes_total",
        "clusterwatt_gpu_utilization_ratio",
        "clusterwatt_gpu_power_watts",
    )
    assert names("minimal") == [network]
    assert names("standard") == [use, power, network]
    assert names("full") == [use, power, power, network, network]
    assert names("minimal", {"gpu_power_watts": True}) == [power, power, network]
    assert names("standard", {"clusterwatt_network_receive_bytes_total": False}) == [use, power]


def test_g02_a_series_that_ended_is_gone_at_the_next_scrape() -> None:
    renderer = Renderer(CATALOG, "full", {}, 100)
    both = snapshot(GpuUse("0", A, 0.2), GpuUse("1", B, 0.1))
    one = snapshot(GpuUse("1", B, 0.1))
    assert renderer.render(both, openmetrics=False).series == 2
    second = renderer.render(one, openmetrics=False)
    assert series(second.body.decode()) == [f'clusterwatt_gpu_utilization_ratio{{gpu="1",uuid="{B}"}} 0.1']
    assert A not in second.body.decode()


def test_g19_odd_label_values_are_escaped_and_the_page_can_be_parsed() -> None:
    quoted = os_text(b'train "A"\\run\n2')
    broken = os_text(b"\xffapi")
    readings = (
        Filesystem(quoted, "ext4", size_bytes=1.0),
        Filesystem(broken, "ext4", size_bytes=2.0),
        Filesystem("\r\t\x00 {}=,#é\u2028", "ext4", size_bytes=3.0),
        GpuUse("0", A, 0.5),
    )
    text = page(*readings)
    assert r'mountpoint="train \"A\"\\run\n2"' in text
    assert 'mountpoint="\ufffdapi"' in text
    assert len(text.split("\n")) == 2 + 3 + 2 + 1 + 1  # nothing but \n ends a line
    parsed = {
        sample.labels["mountpoint"]: sample.value
        for family in openmetrics_families(page(*readings, openmetrics=True))
        for sample in family.samples
        if "mountpoint" in sample.labels
    }
    assert parsed == {quoted: 1.0, "\ufffdapi": 2.0, "\r\t\x00 {}=,#é\u2028": 3.0}


def test_g19_promtool_parses_odd_label_values(promtool: Path) -> None:
    mounts = (
        Filesystem(os_text(name), "ext4", size_bytes=1.0) for name in (b'a "A"\\run\n2', b"\xffapi", b"\r\0")
    )
    text = page(*mounts, GpuUse("0", A, 0.5))
    check = subprocess.run(
        [promtool, "check", "metrics"], input=text.encode(), capture_output=True, check=False
    )
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


def test_g33_two_cards_of_one_name_and_serial_are_two_series() -> None:
    text = page(
        gpu_info("0", A, "NVIDIA L4"),
        gpu_info("1", B, "NVIDIA L4"),
        GpuUse("0", A, 0.02),
        GpuUse("1", B, 0.49),
    )
    use = [line for line in series(text) if "utilization" in line]
    assert use == [
        f'clusterwatt_gpu_utilization_ratio{{gpu="0",uuid="{A}"}} 0.02',
        f'clusterwatt_gpu_utilization_ratio{{gpu="1",uuid="{B}"}} 0.49',
    ]
    identities = [line.rsplit(" ", 1)[0] for line in series(text)]
    assert len(identities) == len(set(identities)) == 4


def test_g33_no_two_lines_share_name_and_labels() -> None:
    renderer = Renderer(CATALOG, "full", {}, 100)
    rendered = renderer.render(
        snapshot(
            GpuUse("0", A, 0.1),
            GpuUse("0", A, 0.9),
            Filesystem(os_text(b"/\xfe"), "ext4", size_bytes=1.0),
            Filesystem(os_text(b"/\xff"), "ext4", size_bytes=2.0),  # another name, the same text
        ),
        openmetrics=False,
    )
    assert series(rendered.body.decode()) == [
        f'clusterwatt_gpu_utilization_ratio{{gpu="0",uuid="{A}"}} 0.1',
        'clusterwatt_filesystem_size_bytes{fstype="ext4",mountpoint="/\ufffd"} 1.0',
    ]
    assert (rendered.series, rendered.dropped) == (2, {"gpu_use": 1, "filesystem": 1})


def test_a_double_of_an_absent_value_is_no_double() -> None:
    text = page(Network("eth0", "physical"), Network("eth0", "physical", receive_bytes=7.0))
    assert series(text) == ['clusterwatt_network_receive_bytes_total{device="eth0"} 7.0']


def test_a_table_keeps_to_its_limit_and_says_what_it_dropped() -> None:
    few = Table(Network, ("device",), max_rows=3)
    catalog = (few.counter("network_receive_bytes_total", "Bytes received.", "receive_bytes"), *CATALOG[:2])
    readings = [Network(f"veth{n}", "virtual", receive_bytes=float(n)) for n in range(10)]
    rendered = Renderer(catalog, "full", {}, 100).render(
        snapshot(*readings, GpuUse("0", A, 1.0)), openmetrics=False
    )
    assert (rendered.series, rendered.dropped) == (4, {"network": 7})
    assert 'device="veth2"' in rendered.body.decode()
    assert 'device="veth3"' not in rendered.body.decode()


def test_the_page_keeps_to_its_limit_and_says_what_it_dropped() -> None:
    readings = [Network(f"eth{n}", "physical", receive_bytes=float(n)) for n in range(10)]
    passes = [CollectorDuration(name, 1.0, 1.0) for name in ("gpu", "cpu")]
    rendered = Renderer(CATALOG, "full", {}, 11).render(snapshot(*readings, *passes), openmetrics=False)
    assert (rendered.series, rendered.dropped) == (10, {"collector_duration": 4})  # no half summary
    rendered = Renderer(CATALOG, "full", {}, 6).render(snapshot(*readings, *passes), openmetrics=False)
    assert (rendered.series, rendered.dropped) == (6, {"network": 4, "collector_duration": 4})


OTHERS = (
    TextFamily("smart_ok", "gauge", "Healthy.", ('smart_ok{disk="a"} 1', 'smart_ok{disk="b"} 0')),
    TextFamily("jobs_total", "counter", 'Jobs, as in "squeue".\n', ("jobs_total 5e+3",)),
    TextFamily("odd_count", "counter", "", ("odd_count 7",)),
    TextFamily("plain", "untyped", "", ("plain NaN",)),
    TextFamily("wait", "histogram", "", ('wait_bucket{le="+Inf"} 3', "wait_sum 1.5", "wait_count 3")),
)


def test_families_of_text_files_come_last_and_unchanged() -> None:
    text = page(GpuUse("0", A, 0.5), *OTHERS)
    assert series(text)[0].startswith("clusterwatt_gpu_utilization_ratio{")
    assert text.endswith(
        "# HELP smart_ok Healthy.\n# TYPE smart_ok gauge\n"
        'smart_ok{disk="a"} 1\nsmart_ok{disk="b"} 0\n'
        '# HELP jobs_total Jobs, as in "squeue".\\n\n# TYPE jobs_total counter\njobs_total 5e+3\n'
        "# HELP odd_count \n# TYPE odd_count counter\nodd_count 7\n"
        "# HELP plain \n# TYPE plain untyped\nplain NaN\n"
        "# HELP wait \n# TYPE wait histogram\n"
        'wait_bucket{le="+Inf"} 3\nwait_sum 1.5\nwait_count 3\n'
    )
    openmetrics = page(*OTHERS, openmetrics=True)
    assert [(family.name, family.type) for family in openmetrics_families(openmetrics)] == [
        ("smart_ok", "gauge"),
        ("jobs", "counter"),
        ("odd_count", "unknown"),
        ("plain", "unknown"),
        ("wait", "histogram"),
    ]


def test_a_family_of_a_text_file_goes_out_whole_or_not_at_all() -> None:
    rendered = Renderer(CATALOG, "full", {}, 3).render(
        snapshot(GpuUse("0", A, 0.5), *OTHERS), openmetrics=False
    )
    assert (rendered.series, rendered.dropped) == (3, {"text_family": 6})
    assert b"smart_ok" in rendered.body
    assert b"jobs_total" not in rendered.body


def test_two_families_with_series_of_one_name_are_refused() -> None:
    clash = BLOCKED.gauge("collector_duration_seconds_sum", "A clash.", "processes")
    with pytest.raises(ValueError, match="collector_duration_seconds_sum"):
        Renderer((*CATALOG, clash), "full", {}, 100)


def test_label_texts_are_kept_for_what_is_on_the_page_only() -> None:
    renderer = Renderer(CATALOG, "full", {}, 10_000)
    for tick in range(100):
        renderer.render(
            snapshot(*(GpuUse(str(gpu), f"GPU-{tick}-{gpu}", 0.5) for gpu in range(8))), openmetrics=False
        )
    assert sum(len(rows._known) for rows in renderer._tables.values()) == 8


texts = st.text(st.characters(), max_size=12) | st.text('\\"\n\r\0\ud800\udcff {}=,é', max_size=8)
numbers = (
    st.none()
    | st.floats()
    | st.integers()
    | st.sampled_from(
        [
            1e300,
            5e-324,
            1e6,
            999999.9999999999,
            1e16,
            9999999999999998.0,
            -0.0,
            -12345678.9,
            1e22,
            123456789.125,
        ]
    )
    | st.floats(1e5, 1e17)
)
readings_of_all_kinds = st.lists(
    st.builds(GpuUse, texts, texts, numbers)
    | st.builds(GpuInfo, *[texts] * 11)
    | st.builds(GpuPower, texts, texts, st.sampled_from(["gpu", "module", "memory"]), texts, numbers)
    | st.builds(Network, texts, st.sampled_from(["physical", "virtual", "other"]), numbers)
    | st.builds(Filesystem, texts, texts, numbers)
    | st.builds(CollectorDuration, texts, numbers, numbers)
    | st.builds(BlockedProcesses, numbers, numbers),
    max_size=25,
)


@given(
    st.lists(readings_of_all_kinds, min_size=1, max_size=3),
    st.sampled_from(["minimal", "standard", "full"]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_every_page_is_byte_for_byte_that_of_prometheus_client(
    ticks: list[list[Reading]], profile: str, openmetrics: bool
) -> None:
    ours, reference = Renderer(CATALOG, profile, {}, 10_000), ReferenceRenderer(CATALOG, profile, {})
    for readings in ticks:
        tick = snapshot(*readings)
        assert ours.render(tick, openmetrics=openmetrics).body == reference.render(
            tick, openmetrics=openmetrics
        )


@given(readings_of_all_kinds)
@settings(max_examples=100, deadline=None)
def test_parsers_read_the_page_and_find_no_series_twice(readings: list[Reading]) -> None:
    text = page(*readings)
    found = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in parse_text(text)
        for sample in family.samples
    ]
    assert len(found) == len(set(found)) == len(re.findall(r"^clusterwatt_", text, re.MULTILINE))


def test_a_page_of_3000_series_takes_a_fraction_of_the_tick() -> None:
    """A guard against a slip of an order of magnitude; figures are made by benchmarks/render.py."""
    rng = random.Random(1)
    table = Table(Network, ("device",))
    fields = ("receive_bytes", "transmit_bytes", "receive_packets", "transmit_packets", "receive_errors")
    catalog = tuple(table.counter(f"network_{field}_total", "Counted.", field) for field in fields)
    tick = snapshot(
        *(Network(f"eth{n}", "physical", *(rng.random() * 1e9 for _ in range(5))) for n in range(600))
    )
    renderer = Renderer(catalog, "full", {}, 10_000)
    best = min(_seconds(renderer, tick) for _ in range(10))
    assert renderer.render(tick, openmetrics=False).series == 3000
    assert best < 0.1


def _seconds(renderer: Renderer, tick: Snapshot) -> float:
    started = time.process_time()
    renderer.render(tick, openmetrics=False)
    return time.process_time() - started


def os_text(name: bytes) -> str:
    """A file or process name as Python gives it."""
    return os.fsdecode(name)
