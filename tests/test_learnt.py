"""What was learnt of the hardware outlives the agent, and what is gone for a week does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.learnt import MOST_ITEMS, Learnt
from tests.clocks import FakeClock

DAY_S = 86_400.0


def restarted(learnt: Learnt, path: Path, clock: FakeClock) -> Learnt:
    learnt.close()
    assert learnt._worker is not None
    learnt._worker._thread.join(10)
    return Learnt(path, clock)


def test_the_highest_value_outlives_the_agent(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "new" / "learnt.json"
    learnt = Learnt(path, clock)
    assert learnt.most("rate", "mlx5_0/1", 50.0) == 50.0
    assert learnt.most("rate", "mlx5_0/1", 25.0) == 50.0
    learnt = restarted(learnt, path, clock)
    assert learnt.of("rate") == {"mlx5_0/1": 50.0}
    learnt.close()


def test_what_was_not_seen_for_a_week_is_forgotten_and_what_was_seen_is_not(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "learnt.json"
    learnt = Learnt(path, clock)
    learnt.most("port", "gone", 1.0)
    for _ in range(9):
        learnt.most("port", "there", 1.0)
        clock.advance(DAY_S)
    learnt = restarted(learnt, path, clock)
    assert learnt.of("port") == {"there": 1.0}
    learnt.close()


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "learnt.json"
    learnt = Learnt(path, clock)
    learnt.most("port", "a", 1.0)
    learnt.keep()
    learnt = restarted(learnt, path, clock)
    path.unlink()
    for _ in range(3_600):
        learnt.most("port", "a", 1.0)
        learnt.keep()
        clock.advance(1.0)
    learnt.close()
    assert learnt._worker is not None
    learnt._worker._thread.join(10)
    assert not path.exists()


@pytest.mark.parametrize("text", [b"", b"{", b'{"port": 3}', b'{"port": {"a": {"value": "x"}}}', b"\xff\x00"])
def test_a_damaged_file_is_one_line_and_a_new_beginning(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "learnt.json"
    path.write_bytes(text)
    learnt = Learnt(path, FakeClock(), writes=False)
    assert learnt.of("port") == {}
    assert len(caplog.records) == 1


def test_the_number_of_items_is_bounded() -> None:
    learnt = Learnt(None, FakeClock())
    for number in range(MOST_ITEMS + 5):
        learnt.most("port", str(number), 1.0)
    assert len(learnt.of("port")) == MOST_ITEMS
