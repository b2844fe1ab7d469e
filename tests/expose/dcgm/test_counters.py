"""Counter files: what is read, and one clear line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.config.problems import ConfigError
from clusterwatt.expose.dcgm.counters import Counter, CounterList, default_counters, read_counters
from clusterwatt.expose.dcgm.fields import FIELDS, KNOWN, LABELS, OLD_NAMES, UNAVAILABLE, field_of

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n"
POWER = "DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).\n"

# What etc/default-counters.csv of dcgm-exporter 4.8.2 has on.
DEFAULT = {
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_DRIVER_VERSION",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
}


def read(tmp_path: Path, text: str, *, skip_unknown: bool = False) -> CounterList:
    file = tmp_path / "counters.csv"
    file.write_text(text, encoding="utf-8")
    return read_counters(file, KNOWN, skip_unknown=skip_unknown)


def names(found: CounterList) -> list[str]:
    return [counter.name for counter in found.counters]


def problems(tmp_path: Path, text: str, *, skip_unknown: bool = False) -> list[str]:
    """Each problem behind the name of the file."""
    with pytest.raises(ConfigError) as wrong:
        read(tmp_path, text, skip_unknown=skip_unknown)
    return [str(problem).partition("counters.csv")[2] for problem in wrong.value.problems]


def test_g43_a_comment_and_a_blank_line_between_entries_change_nothing(tmp_path: Path) -> None:
    """They made dcgm-exporter fall back to its defaults (NVIDIA/dcgm-exporter#118)."""
    text = (
        f"# Format,,\n\n{TEMPERATURE}\n# Power, and more,,\n   \n{POWER}  # DCGM_FI_DEV_GPU_UTIL, gauge, x\n"
    )
    assert names(read(tmp_path, text)) == ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"]


def test_g43_a_misspelt_name_is_refused_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, f"# a comment\n{POWER}DCGM_FI_DEV_GPU_TMP, gauge, Text.\n")
    assert problem == (
        ':3: expose.dcgm.counters_file: unknown counter "DCGM_FI_DEV_GPU_TMP"; did you mean '
        "DCGM_FI_DEV_GPU_TEMP? (expose.dcgm.skip_unknown leaves such out)"
    )


def test_unknown_counters_are_left_out_with_a_word_where_that_is_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, f"DCGM_FI_DEV_FAN_SPEED, gauge, Fans.\n{POWER}", skip_unknown=True)
    assert names(found) == ["DCGM_FI_DEV_POWER_USAGE"]
    assert found.notes == (f"{tmp_path}/counters.csv:1: DCGM_FI_DEV_FAN_SPEED is left out: unknown here",)


def test_what_nvml_does_not_have_is_left_out_with_the_reason(tmp_path: Path) -> None:
    found = read(tmp_path, f"{POWER}DCGM_EXP_GPU_HEALTH_STATUS, counter, Health.\n")
    assert names(found) == ["DCGM_FI_DEV_POWER_USAGE"]
    (note,) = found.notes
    assert note.startswith(f"{tmp_path}/counters.csv:2: DCGM_EXP_GPU_HEALTH_STATUS is left out: ")


def test_names_types_and_texts_are_those_of_the_file(tmp_path: Path) -> None:
    text = 'DCGM_FI_DEV_DEC_UTIL ,     counter, "Decoder, in %"\nDCGM_FI_DRIVER_VERSION, label, Driver\n'
    assert read(tmp_path, text).counters == (
        Counter("DCGM_FI_DEV_DEC_UTIL", "counter", "Decoder, in %"),
        Counter("DCGM_FI_DRIVER_VERSION", "label", "Driver"),
    )


def test_of_a_name_that_stands_twice_the_first_line_counts(tmp_path: Path) -> None:
    """The file that dcgm-exporter ships for names of 1.x has the PCIe pair twice."""
    found = read(tmp_path, f"{POWER}DCGM_FI_DEV_POWER_USAGE, counter, Text.\n")
    assert [counter.kind for counter in found.counters] == ["gauge"]
    assert found.notes == (
        f"{tmp_path}/counters.csv:2: DCGM_FI_DEV_POWER_USAGE stands on line 1 already, which counts",
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("DCGM_FI_DEV_GPU_TEMP", "expected name, type and help, got 1 columns"),
        (
            "DCGM_FI_DEV_GPU_TEMP, gauge, hot, hotter",
            "expected name, type and help, got 4 columns; a help text with commas stands in quotes",
        ),
        ('DCGM_FI_DEV_GPU_TEMP, gauge, "hot', "not valid CSV: unexpected end of data"),
        (
            "DCGM_FI_DEV_GPU_TEMP, histogram, hot",
            'DCGM_FI_DEV_GPU_TEMP: expected the type gauge or counter, got "histogram"',
        ),
        (
            "DCGM_FI_DRIVER_VERSION, gauge, driver",
            'DCGM_FI_DRIVER_VERSION: expected the type label, got "gauge"',
        ),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: str, said: str) -> None:
    assert problems(tmp_path, f"{POWER}\n{line}\n") == [f":3: expose.dcgm.counters_file: {said}"]


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "flux, gauge, x\nDCGM_FI_DEV_GPU_TEMP\nDCGM_FI_DEV_GPU_TEMP, gauge, x\n")
    assert [problem.partition(" ")[0] for problem in found] == [":1:", ":2:"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "DCGM_FI_DRIVER_VERSION, label, Driver.\n"])
def test_a_file_without_a_counter_is_refused(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == [
        ": expose.dcgm.counters_file: there is no counter in it that could be served"
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        read_counters(tmp_path / "none.csv", KNOWN, skip_unknown=False)
    assert str(wrong.value) == (
        f"{tmp_path}/none.csv: expose.dcgm.counters_file: cannot be read: No such file or directory"
    )


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    file.write_bytes(b"DCGM_FI_DEV_GPU_TEMP, gauge, Temp\xe9rature\n")
    with pytest.raises(ConfigError, match=r"counters.csv:1:\d+: expose.dcgm.counters_file: not UTF-8"):
        read_counters(file, KNOWN, skip_unknown=False)


def test_lines_of_windows_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    file.write_bytes(b"\xef\xbb\xbfDCGM_FI_DEV_GPU_TEMP, gauge, Heat.\r\n\r\n# x\r\n")
    assert read_counters(file, KNOWN, skip_unknown=False).counters == (
        Counter("DCGM_FI_DEV_GPU_TEMP", "gauge", "Heat."),
    )


def test_the_default_list_is_that_of_dcgm_exporter() -> None:
    found = default_counters(KNOWN)
    assert not found.notes
    assert set(names(found)) == DEFAULT


def test_the_default_file_names_every_counter_there_is(tmp_path: Path) -> None:
    """Without its marks of comments it still is a counter file, with all that can be served."""
    from importlib import resources

    text = resources.files("clusterwatt").joinpath("data/dcgm-counters.csv").read_text(encoding="utf-8")
    found = read(tmp_path, text.replace("# DCGM_", "DCGM_"))
    assert set(names(found)) == {*FIELDS, *LABELS}


def test_no_name_has_two_meanings() -> None:
    kinds = [set(FIELDS), set(LABELS), set(UNAVAILABLE), set(OLD_NAMES)]
    assert len(set().union(*kinds)) == sum(map(len, kinds))
    assert {field_of(name) for name in OLD_NAMES} <= {*FIELDS, *UNAVAILABLE}
