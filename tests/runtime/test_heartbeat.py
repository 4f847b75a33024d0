"""A loop that hangs is told: in the status, in the log, by the exit code of `penstock health`."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.decide.policy import Hold
from penstock.errors import JournalUnavailable
from penstock.journal.pulses import HEARTBEAT, JournalPulse, list_pulses
from penstock.journal.store import Journal, open_journal
from penstock.runtime.heartbeat import Heartbeat, Watchdog
from tests.commands.command_line import Captured, last_json
from tests.fakes import FixedPolicy
from tests.runtime.test_attach import Bench
from tests.waiting import wait_for


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stuck(FixedPolicy):
    """A policy that hangs until it is let go."""

    def __init__(self) -> None:
        super().__init__(Hold("right"))
        self.reached, self.go_on = threading.Event(), threading.Event()

    def propose(self, window):
        self.reached.set()
        self.go_on.wait()
        return super().propose(window)


def test_three_intervals_without_a_beat_are_too_long():
    clock = Clock()
    heart = Heartbeat(10.0, clock)
    clock.now += 30.0
    assert heart.describe() is None and not heart.plain()["hangs"]
    clock.now += 1.0
    told = "the autopilot hangs: its loop has not come round for 31 s, and should within 30 s"
    assert heart.describe() == told and heart.plain()["hangs"]
    heart.beat()
    assert heart.describe() is None
    assert heart.plain() == {
        "beats": 1, "silent_seconds": 0.0, "hangs_after_seconds": 30.0, "hangs": False
    }  # fmt: skip
    assert Heartbeat(0.1).hangs_after == 5.0, "a busy machine is no hang"


def test_the_watchdog_says_once_that_the_loop_hangs_and_where(caplog: pytest.LogCaptureFixture):
    clock, stuck = Clock(), Stuck()
    heart = Heartbeat(10.0, clock)
    thread = threading.Thread(target=stuck.propose, args=(None,), daemon=True)
    thread.start()
    stuck.reached.wait()
    watchdog = Watchdog(heart, "app-1", thread)
    clock.now += 31.0
    with caplog.at_level(logging.WARNING):
        watchdog.look()
        watchdog.look()
    (told,) = caplog.records
    assert "app-1: the autopilot hangs" in told.getMessage() and "in propose" in told.getMessage()
    caplog.clear()
    heart.beat()
    watchdog.look()
    watchdog.look()
    assert [one.getMessage() for one in caplog.records] == ["app-1: the autopilot's loop goes on"]
    stuck.go_on.set()
    thread.join()


def test_a_hang_is_told_by_status_health_and_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture, capsys: Captured
):
    stuck = Stuck()
    handle = bench.assembled(stuck)
    settings = bench.directory / "penstock.yaml"
    settings.write_text(f"runtime_directory: {bench.directory / 'run'}\n")
    handle._heart.hangs_after = 0.3
    handle.start()
    config = ["--config", str(settings), "--json"]
    try:
        stuck.reached.wait()
        wait_for("the watchdog", lambda: "its loop has not come round" in caplog.text)
        status = handle.status()
        assert status["heartbeat"]["hangs"] and "the autopilot hangs" in status["warnings"][0]
        assert perform(["health", *config]) == 1
        told = last_json(capsys)
        assert not told["healthy"] and told["applications"][0]["application"] == "app-1"
    finally:
        stuck.go_on.set()
    wait_for("the loop", lambda: not handle.status()["heartbeat"]["hangs"])
    handle._heart.hangs_after = 60.0
    assert perform(["health", "words <1>", *config]) == 0
    assert last_json(capsys)["healthy"]
    assert perform(["health", "other", *config]) == 1
    handle.detach()


class Away:
    def remember(self, *_: object) -> None:
        raise JournalUnavailable("the disk is full")


def test_the_journal_tells_others_who_lives(tmp_path: Path, capsys: Captured):
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    for name, application in (("words", "app-1"), ("words", "app-2"), ("lines", "app-3")):
        JournalPulse(journal, name, application, 10.0).beat(1000.0 + int(application[-1]))
    ended = JournalPulse(journal, "done", "app-4", 10.0)
    ended.beat(1000.0)
    ended.close()
    found = {one["name"]: one for one in list_pulses(journal.recall_all(HEARTBEAT), 1182.5)}
    assert set(found) == {"words", "lines"} and found["words"]["application"] == "app-2"
    assert found["words"]["hangs"] and not found["lines"]["hangs"], "three times a minute is the limit"
    assert list_pulses(journal.recall_all(HEARTBEAT), 1e6) == [], "of the past"
    journal.close()
    assert perform(["health", "--journal", str(path)]) == 1
    assert "no autopilot" in capsys.readouterr().err


def test_a_run_whose_clock_was_ahead_does_not_speak_for_the_one_after_it():
    """It died an hour ahead, and would have passed for alive until then, whatever the next one does."""
    former = {"at": 1000.0 + 3600.0, "every": 60.0}
    for at, hangs in ((995.0, False), (700.0, True)):
        (told,) = list_pulses({"words": {"app-1": former, "app-2": {"at": at, "every": 60.0}}}, 1000.0)
        assert (told["application"], told["hangs"]) == ("app-2", hangs)
    (alone,) = list_pulses({"words": {"app-1": former}}, 1000.0)
    assert alone["hangs"]


@pytest.mark.parametrize("body", [None, 7, [], {}, {"at": None}, {"at": "now"}, {"at": 1.0, "every": []}])
def test_a_pulse_that_is_none_costs_no_other(body: object):
    found = list_pulses({"odd": {"app-1": body}, "words": {"app-2": {"at": 990.0}}}, 1000.0)  # type: ignore
    assert [one["name"] for one in found if one["name"] != "odd"] == ["words"]


def test_it_is_written_once_a_minute_also_after_the_clock_went_back_and_a_failure_costs_nothing(
    journal: Journal,
):
    pulse = JournalPulse(journal, "words", "app-1", 10.0)

    def written() -> float:
        return float(journal.recall("words", HEARTBEAT)["app-1"]["at"])

    for now, expected in ((1000.0, 1000.0), (1059.0, 1000.0), (1060.0, 1060.0), (500.0, 500.0)):
        pulse.beat(now)
        assert written() == expected
    JournalPulse(Away(), "words", "app-1", 10.0).beat(1.0)
