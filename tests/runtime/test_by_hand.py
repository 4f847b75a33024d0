"""Orders by hand over the control socket: carried out, and in the journal with who gave them."""

from __future__ import annotations

from contextlib import closing

import pytest

from penstock.dataflow.costs.foresight import foresee, read_outlook
from penstock.decide.policy import Hold
from penstock.errors import ActionFailed
from penstock.journal.explain import explain
from penstock.journal.store import journal_at
from penstock.runtime.control import Running, find_running
from tests.dataflow.costs.test_foresight import outlook
from tests.fakes import FixedPolicy
from tests.runtime.test_attach import Bench
from tests.waiting import wait_for


def reach(bench: Bench) -> Running:
    return find_running(bench.directory / "run", "app-1")


def test_pause_and_resume_are_in_the_journal_with_who_did_it(bench: Bench) -> None:
    handle = bench.autopilot()
    running = reach(bench)
    assert running.ask("pause", by="ada <i>") == {"version": 1, "ok": True, "paused": True}
    assert handle.status()["pause_reason"] == "paused by ada <i>"
    assert running.ask("resume")["paused"] is False
    with closing(journal_at(bench.directory / "journal.db")) as journal:
        by_hand = [one.reason for one in journal.decisions("app-1") if one.policy == "by hand"]
    assert by_hand == ["paused by ada <i>", "resumed by hand"]
    assert "paused by ada <i>" in [one["reason"] for one in handle.status()["decisions"]]


def test_a_size_by_hand_is_an_action_like_any_other_also_while_paused(bench: Bench) -> None:
    bench.autopilot()
    running = reach(bench)
    running.ask("pause", by="ada")
    assert running.ask("scale", executors=5, by="ada")["executors"] == 5
    wait_for("five executors", lambda: bench.actuator.size == 5)
    with closing(journal_at(bench.directory / "journal.db")) as journal:
        wait_for("its end", lambda: journal.actions("app-1")[0].status)
        told = explain(journal.actions("app-1")[0])
    assert "by policy by hand" in told and "set to 5 executors by ada" in told


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (0, "min_executors is 1"),
        (65, "max_executors 64"),
        ("5", "whole number"),
        (True, "whole number"),
        (None, "whole number"),
    ],
)
def test_a_size_that_is_none_or_not_allowed_is_refused(bench: Bench, asked: object, said: str) -> None:
    bench.autopilot()
    with pytest.raises(ActionFailed, match=said):
        reach(bench).ask("scale", executors=asked)
    assert not bench.actuator.begun


def test_a_size_by_hand_needs_an_actuator(bench: Bench) -> None:
    bench.autopilot(observe=True)
    with pytest.raises(ActionFailed, match="only observes"):
        reach(bench).ask("scale", executors=3)


def test_what_other_sizes_are_foreseen_from_is_told(bench: Bench) -> None:
    made = outlook()
    handle = bench.autopilot(FixedPolicy(Hold("right", {}, (made,))))
    wait_for("a window", lambda: handle.status()["recent"])
    (told,) = reach(bench).ask("outlooks")["outlooks"]
    assert foresee([read_outlook(told)], 6) == foresee([made], 6)


def test_the_past_is_told_once_to_one_who_names_it(bench: Bench) -> None:
    handle = bench.autopilot()
    wait_for("a window", lambda: handle.status()["recent"])
    handle.detach()
    whole = handle.status()
    again = handle.status(whole["timeline"])
    assert whole["recent"] and "recent" not in again and again["heartbeat"]
    assert handle.status("of-another.3")["recent"] == whole["recent"]


def test_what_was_held_is_told_against_the_first_and_the_largest_size(bench: Bench) -> None:
    handle = bench.autopilot()
    wait_for("three windows", lambda: len(handle.status()["recent"]) >= 3)
    usage = handle.status()["usage"]
    assert (usage["slots_at_start"], usage["slots_at_peak"]) == (4, 4)
    assert usage["slot_seconds"] == pytest.approx(4 * usage["seconds"])
    assert (usage["executors_at_start"], usage["executors_at_peak"]) == (2, 2)
    assert usage["executor_seconds"] == pytest.approx(2 * usage["seconds"])
    assert handle.status()["bounds"] == {"least": 1, "most": 64}
