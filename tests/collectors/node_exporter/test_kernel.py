"""Tables of the kernel under node_exporter's names."""

from __future__ import annotations

from pathlib import Path

from clusterwatt.collectors.node_exporter import kernel
from tests.collectors.node_exporter.families import files_of, values
from tests.machines import put

STAT = """cpu  100 20 30 4000 5 6 7 8 9 1
cpu0 60 10 20 2000 3 4 5 6 7 1
cpu1 40 10 10 2000 2 2 2 2 2 0
intr 12345 1 2 3
ctxt 678
btime 1700000000
processes 99
procs_running 3
procs_blocked 1
"""


def test_cpu_time_is_by_cpu_and_holds_guests_as_node_exporter_has_it(tmp_path: Path) -> None:
    put(tmp_path, "/proc/stat", STAT)
    found = list(kernel.Stat(files_of(tmp_path)).families())
    seconds = values(found, "node_cpu_seconds_total")
    assert seconds["0", "user"] == 0.6
    assert seconds["1", "idle"] == 20.0
    assert len(seconds) == 16
    assert values(found, "node_cpu_guest_seconds_total")["0", "nice"] == 0.01
    assert values(found, "node_boot_time_seconds") == {(): 1_700_000_000}
    assert values(found, "node_intr_total") == {(): 12345}


def test_idle_time_does_not_step_back_unless_the_cpu_was_away(tmp_path: Path) -> None:
    stat = kernel.Stat(files_of(tmp_path))
    for idle, expected in ((2000, 20.0), (1990, 20.0), (2010, 20.1), (100, 1.0)):
        put(tmp_path, "/proc/stat", f"cpu 0 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0 0 {idle} 0 0 0 0 0 0\n")
        assert values(stat.families(), "node_cpu_seconds_total")["0", "idle"] == expected


def test_a_line_of_meminfo_becomes_a_family_in_bytes_unless_it_counts_pages(tmp_path: Path) -> None:
    put(tmp_path, "/proc/meminfo", "MemTotal:  16 kB\nActive(anon): 2 kB\nHugePages_Total:  5\n")
    found = list(kernel.meminfo(files_of(tmp_path)))
    assert values(found, "node_memory_MemTotal_bytes") == {(): 16_384}
    assert values(found, "node_memory_Active_anon_bytes") == {(): 2_048}
    assert values(found, "node_memory_HugePages_Total") == {(): 5}


def test_pressure_of_the_cpu_has_no_full(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/proc/pressure/cpu",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
    )
    found = list(kernel.pressure(files_of(tmp_path)))
    assert values(found, "node_pressure_cpu_waiting_seconds_total") == {(): 1.5}
    assert len(found) == 1


def test_limits_are_there_where_the_kernel_has_them(tmp_path: Path) -> None:
    put(tmp_path, "/proc/sys/fs/file-nr", "1024\t0\t2048\n")
    found = list(kernel.limits(files_of(tmp_path)))
    assert values(found, "node_filefd_allocated") == {(): 1024}
    assert values(found, "node_filefd_maximum") == {(): 2048}
    assert not values(found, "node_nf_conntrack_entries")
