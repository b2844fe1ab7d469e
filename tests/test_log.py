"""Lines of the log: one an event, whatever it holds; and no flood."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt import log
from tests.clocks import FakeClock


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("clusterwatt.test").makeRecord(
        "clusterwatt.test", logging.WARNING, "file.py", 1, message, args, None, extra=extra
    )
    made.created = 1_700_000_000.5
    return made


def logfmt(message: str, *args: object, **extra: object) -> str:
    return log.LogfmtFormatter().format(record(message, *args, **extra))


def test_logfmt() -> None:
    assert logfmt("%s reads again", "disk", collector="disk", item="nvme 0", empty="", count=3) == (
        "time=2023-11-14T22:13:20.500Z level=warning logger=clusterwatt.test "
        'msg="disk reads again" collector=disk item="nvme 0" empty="" count=3'
    )


def test_logfmt_escapes_what_would_break_or_forge_a_line() -> None:
    assert logfmt("up", mount='a\nlevel=error "x" \\ \x1b[2J\u2028\udcff').partition("mount=")[2] == (
        r'"a\nlevel=error \"x\" \\ \x1b[2J\u2028\udcff"'
    )
    assert logfmt("up", mount="größe").endswith(" mount=größe")


def test_json() -> None:
    line = log.JsonFormatter().format(
        record("up\n", count=3, share=0.5, nothing=None, bad=float("nan"), path={1})
    )
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "warning",
        "logger": "clusterwatt.test",
        "msg": "up\n",
        "count": 3,
        "share": 0.5,
        "nothing": None,
        "bad": "nan",
        "path": "{1}",
    }


@pytest.mark.parametrize("formatter", [log.LogfmtFormatter(), log.JsonFormatter()])
def test_a_traceback_is_a_field_of_its_line(formatter: logging.Formatter) -> None:
    made = record("failed")
    try:
        int("odd\nvalue")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    line = formatter.format(made)
    assert len(line.splitlines()) == 1
    assert "Traceback" in line
    assert "ValueError: invalid literal" in line


@given(st.text(), st.text())
def test_any_text_stays_on_one_line_that_can_be_written(message: str, field: str) -> None:
    made = record("%s", message, field=field)
    for formatter in (log.LogfmtFormatter(), log.JsonFormatter()):
        line = formatter.format(made)
        assert len(line.splitlines()) == 1
        line.encode()
    assert json.loads(line)["field"] == field


@pytest.mark.usefixtures("restored")
def test_configured_logging_writes_what_the_level_lets_through() -> None:
    stream = io.StringIO()
    log.configure("warning", "logfmt", stream)
    logging.getLogger("clusterwatt.a").info("no")
    logging.getLogger("clusterwatt.a").warning("yes")
    logging.getLogger("other").error("yes")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("odd", UserWarning, "file.py", 1)
    lines = stream.getvalue().splitlines()
    assert [line.split(" ")[1:3] for line in lines] == [
        ["level=warning", "logger=clusterwatt.a"],
        ["level=error", "logger=other"],
        ["level=warning", "logger=py.warnings"],
    ]


@pytest.mark.usefixtures("restored")
def test_configuring_again_replaces_what_was_there() -> None:
    first, second = io.StringIO(), io.StringIO()
    log.configure("info", "logfmt", first)
    log.configure("debug", "json", second)
    logging.getLogger("clusterwatt").debug("once")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["msg"] == "once"


class TestChangeLog:
    @pytest.fixture(autouse=True)
    def changes(self, caplog: pytest.LogCaptureFixture) -> log.ChangeLog:
        caplog.set_level(logging.INFO)
        self.clock = FakeClock()
        self.lines = caplog
        self.log = log.ChangeLog(logging.getLogger("clusterwatt.test"), self.clock)
        return self.log

    def bad(self, state: str = "timeout") -> None:
        self.log.bad("disk", state, f"disk: {state}", collector="disk")

    def good(self) -> None:
        self.log.good("disk", "disk reads again")

    def written(self) -> list[str]:
        texts = self.lines.messages[:]
        self.lines.clear()
        return texts

    def test_what_was_always_well_is_not_mentioned(self) -> None:
        self.good()
        assert self.written() == []

    def test_a_change_is_logged_at_once_and_once(self) -> None:
        for _ in range(5):
            self.bad()
            self.clock.advance(1)
        assert self.written() == ["disk: timeout"]
        self.bad("permission")
        assert self.written() == ["disk: permission"]
        self.good()
        self.good()
        assert self.written() == ["disk reads again"]
        self.bad()
        assert self.written() == ["disk: timeout"]

    def test_a_bad_state_that_lasts_is_logged_every_ten_minutes(self) -> None:
        for _ in range(3601):
            self.bad()
            self.clock.advance(1)
        assert self.written() == ["disk: timeout"] * 7

    def test_a_good_state_is_not_repeated_and_then_forgotten(self) -> None:
        self.bad()
        for _ in range(3601):
            self.good()
            self.clock.advance(1)
        assert self.written() == ["disk: timeout", "disk reads again"]
        assert self.log._kept == {}

    def test_keys_are_apart(self) -> None:
        self.log.bad("disk", "timeout", "disk")
        self.log.bad("rdma", "timeout", "rdma")
        self.log.good("cpu", "cpu")
        assert self.written() == ["disk", "rdma"]

    def test_a_flapping_state_does_not_flood_and_its_changes_are_told(self) -> None:
        for _ in range(1800):
            self.bad()
            self.clock.advance(1)
            self.good()
            self.clock.advance(1)
        assert 6 <= len(self.lines.records) <= 6 * 6 + 6
        assert max(getattr(record, "changes", 0) for record in self.lines.records) > 500

    def test_the_last_word_is_right_in_the_end(self) -> None:
        for _ in range(30):
            self.bad()
            self.clock.advance(1)
            self.good()
        self.written()
        self.bad()
        for _ in range(600):
            self.clock.advance(1)
            self.bad()
        assert self.written()[-1] == "disk: timeout"
        assert self.lines.messages == []

    def of_texts(self) -> Callable[[str], None]:
        told = log.ChangeLog(logging.getLogger("clusterwatt.test"), self.clock, tells_causes=True)
        return lambda text: told.bad("squeue", "io_error", text)

    def test_another_cause_of_the_same_state_is_told_where_asked_for(self) -> None:
        say = self.of_texts()
        say("squeue printed too much")
        for _ in range(10):
            self.clock.advance(60)
            say("squeue ended with 1: no word")
        assert self.written() == ["squeue printed too much", "squeue ended with 1: no word"]

    def test_a_number_is_not_another_cause(self) -> None:
        say = self.of_texts()
        for second in range(599):
            say(f"10.0.0.{second} took {second / 7:g} s, 0x{second:04x}")
            self.clock.advance(1)
        assert len(self.written()) == 1

    def test_causes_in_turn_do_not_flood_nor_keep_back_a_change_of_state(self) -> None:
        told = log.ChangeLog(logging.getLogger("clusterwatt.test"), self.clock, tells_causes=True)
        for second in range(1800):
            told.bad("squeue", "io_error", "odd" if second % 2 else "even")
            self.clock.advance(1)
        assert 3 <= len(self.written()) <= 30
        told.good("squeue", "squeue is well")
        assert self.written() == ["squeue is well"]

    def test_fields_reach_the_line(self) -> None:
        self.bad()
        assert self.lines.records[0].__dict__["collector"] == "disk"
        assert self.lines.records[0].levelname == "WARNING"


def test_a_line_break_is_written_when_no_file_can_be_opened() -> None:
    """The codec of escapes is in a file, which must not be opened only then."""
    program = (
        "import logging, os, resource, sys\n"
        "from clusterwatt.log import configure\n"
        "configure('info', 'logfmt')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "logging.info('first\\nsecond')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stderr.endswith('msg="first\\nsecond"\n'), ended.stderr
    assert ended.stderr.count("\n") == 1
