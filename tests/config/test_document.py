"""Files that are no configuration: each ends in one clear line."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.config.document import MAX_FILE_BYTES
from clusterwatt.config.load import MAX_PROBLEMS, load
from clusterwatt.config.problems import ConfigError
from clusterwatt.config.write import reference

NOBODY = 65534


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("clusterwatt.yaml")


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, {}, [])
    (problem,) = caught.value.problems
    assert "\n" not in str(problem)
    return str(problem)


def test_a_missing_file(written: Path) -> None:
    assert refused(written) == (
        "clusterwatt.yaml: cannot be read: No such file or directory; "
        "`clusterwatt check-config --print-defaults` prints one to begin with"
    )


def test_a_pipe_is_refused_and_not_waited_for(written: Path) -> None:
    os.mkfifo(written)
    assert refused(written) == "clusterwatt.yaml: expected a plain file, found a pipe or device"


def test_a_directory(written: Path) -> None:
    written.mkdir()
    assert refused(written) == "clusterwatt.yaml: expected a plain file, found a directory"


def test_a_file_below_a_file(written: Path) -> None:
    written.write_text("")
    assert refused(written / "more") == "clusterwatt.yaml/more: cannot be read: Not a directory"


def test_a_name_that_no_file_can_have() -> None:
    assert refused(Path("a\0b")) == "a\\x00b: cannot be read: embedded null byte"


def test_an_unreadable_file(written: Path) -> None:
    written.write_text("")
    written.chmod(0)
    who = os.geteuid()
    if who == 0:
        os.seteuid(NOBODY)  # root may read every file
    try:
        assert refused(written) == "clusterwatt.yaml: cannot be read: Permission denied"
    finally:
        os.seteuid(who)


def test_a_file_of_too_many_bytes(written: Path) -> None:
    written.write_bytes(b"#" * MAX_FILE_BYTES)
    load(written, {}, [])
    written.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert refused(written) == "clusterwatt.yaml: larger than 1048576 bytes"


def test_bytes_that_are_not_utf8(written: Path) -> None:
    written.write_bytes(b"node:\n  root: /\xff\n")
    assert refused(written) == "clusterwatt.yaml:2:10: not UTF-8: invalid start byte"
    written.write_bytes("node: {}".encode("utf-16"))
    assert refused(written) == "clusterwatt.yaml:1:1: not UTF-8: invalid start byte"


def test_a_character_that_yaml_does_not_allow(written: Path) -> None:
    written.write_bytes(b"node:\n  root: \x07\n")
    assert refused(written) == "clusterwatt.yaml:2:9: not valid YAML: the character \\x07 is not allowed"


@pytest.mark.parametrize("text", ["5", "[1, 2]", "just a text", "- node\n- log\n"])
def test_a_file_that_is_no_mapping(written: Path, text: str) -> None:
    written.write_text(text)
    assert refused(written).startswith("clusterwatt.yaml:1:1: expected a section of settings, got ")


def test_tabs(written: Path) -> None:
    written.write_text("node:\n\troot: /\n")
    assert refused(written) == ("clusterwatt.yaml:2:1: not valid YAML: a tab; YAML is indented with spaces")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log: {level: info\n", "2:1: not valid YAML: expected ',' or '}', but got '<stream end>' "),
        ("log:\n  level: info\n format: json\n", "3:2: not valid YAML: expected <block end>, but found "),
        ("a: b: c\n", "1:5: not valid YAML: mapping values are not allowed here"),
        ("log: *nobody\n", "1:6: not valid YAML: found undefined alias 'nobody'"),
        ("a: 1\n---\nb: 2\n", "2:1: not valid YAML: but found another document expected a single document"),
        (
            "log: 'info\n",
            "2:1: not valid YAML: found unexpected end of stream while scanning a quoted scalar",
        ),
        ("a: @b\n", "1:4: not valid YAML: found character '@' that cannot start any token"),
    ],
)
def test_mistakes_in_the_yaml_name_line_and_column(written: Path, text: str, message: str) -> None:
    written.write_text(text)
    assert refused(written).startswith(f"clusterwatt.yaml:{message}")


@pytest.mark.parametrize(
    "text", ['a: "\\UFFFFFFFF"', f"%YAML {'9' * 5000}.1\n---\na: 1", "%YAML 2.0\n---\na: 1"]
)
def test_impossible_numbers_in_the_yaml(written: Path, text: str) -> None:
    written.write_text(text)
    line = refused(written)
    assert line.startswith("clusterwatt.yaml")
    assert len(line) < 200


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_that_would_exhaust_the_stack(written: Path, opening: str) -> None:
    written.write_text(opening * (sys.getrecursionlimit() + 10))
    assert "nested too deep" in refused(written)


def test_aliases_within_aliases_are_not_expanded(written: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 18)]
    lines += ["training: {directories: *a17}", "collectors: &c {gpu: *c}"]
    written.write_text("\n".join(lines))
    started = time.process_time()
    with pytest.raises(ConfigError):
        load(written, {}, [])
    assert time.process_time() - started < 5


REFERENCE = reference().replace("#", "").splitlines(keepends=True)

ascii_yaml = st.text(alphabet="abegilnorstu_:,-{}[]&*!|>'\"%@#?<=~ \n\t0159.", max_size=120)


@given(st.one_of(st.binary(max_size=300), ascii_yaml.map(str.encode)))
def test_any_bytes_give_a_configuration_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    loads_or_explains(path)


@given(st.data())
def test_a_damaged_file_gives_a_configuration_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(REFERENCE) - 1))
    text = "".join(REFERENCE[start : start + 10])
    cut = data.draw(st.integers(0, len(text)))
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_text(text[:cut] + data.draw(ascii_yaml) + text[cut:], encoding="utf-8")
    loads_or_explains(path)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_in_environment_and_on_the_command_line(path: str, value: str) -> None:
    for sets in ([f"{path}={value}"], [value], [f"limits.families={value}"], [f"http.listen={value}"]):
        environ = {f"CLUSTERWATT_{path}": value, "CLUSTERWATT_LOG": value}
        explained(functools.partial(load, None, environ, sets))


def loads_or_explains(path: Path) -> None:
    lines = explained(lambda: load(path, {}, []))
    assert all(line.startswith(f"{path}") for line in lines[:MAX_PROBLEMS])


def explained(call: Callable[[], object]) -> list[str]:
    """The lines of a ConfigError, one for each problem; empty when there is none. Nothing else may rise."""
    try:
        call()
    except ConfigError as raised:
        error = raised
    else:
        return []
    lines = str(error).splitlines()
    assert lines == [str(problem) for problem in error.problems]
    assert lines
    return lines
