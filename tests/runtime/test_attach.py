"""The autopilot's handle and its thread, over fakes of the ports; Spark itself is in tests/spark."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.decide.outcome import Status
from penstock.decide.policy import Hold, Policy
from penstock.errors import ActionFailed, SparkUnavailable
from penstock.journal.store import journal_at
from penstock.runtime import control
from penstock.runtime.assembly import MOST_UNANSWERED, make_patient_check
from penstock.runtime.attach import attach_once
from penstock.runtime.autopilot import Autopilot, Findings
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from penstock.settings.model import Settings
from tests.fakes import AgreeingManager, FakeActuator, FakeSource, FixedPolicy, a_scale
from tests.waiting import wait_for


class Bench:
    """Builds autopilots over fakes, and ends them with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.actuator = FakeActuator()
        self.source = FakeSource(executors=lambda: self.actuator.size)
        self.made: list[Autopilot] = []

    def autopilot(self, policy: Policy | None = None, observe: bool = False, **more: Any) -> Autopilot:
        handle = self.assembled(policy, observe, **more)
        handle.start()
        return handle

    def assembled(self, policy: Policy | None = None, observe: bool = False, **more: Any) -> Autopilot:
        settings = Settings(
            policy_interval=0.1,
            journal=str(self.directory / more.pop("journal", "journal.db")),
            runtime_directory=str(self.directory / "run"),
            control_socket=more.pop("control_socket", True),
        )
        journal = journal_at(settings.run.journal)
        answering = policy or FixedPolicy(Hold("right", {"slots_needed": 4.0}))
        actuator = None if observe else self.actuator
        ports = Ports(self.source, answering, AgreeingManager(), journal, actuator)
        loop = Loop("app-1", ports, LoopSettings(policy_interval=0.1))
        handle = Autopilot(loop, settings, "words <1>", life=closing(journal), **more)
        self.made.append(handle)
        return handle


def test_the_status_tells_size_rates_and_decisions(bench: Bench) -> None:
    handle = bench.autopilot()
    wait_for("a decision", lambda: handle.status()["last_decision"])
    status = handle.status()
    assert status["application"] == "app-1"
    assert (status["policy"], status["mode"], status["paused"]) == ("fixed", "act", False)
    assert (status["executors"], status["slots"], status["slots_needed"]) == (2, 4, 4.0)
    assert status["queries"][0]["offered_per_second"] == 100.0
    assert status["last_decision"]["kind"] == "hold"
    assert status["recent"][0]["slots_held"] == 4
    assert status["error"] is None


def test_a_change_is_performed_and_shown_with_its_outcome(bench: Bench) -> None:
    handle = bench.autopilot(FixedPolicy(a_scale(5)))
    wait_for("an outcome", lambda: any(one.get("outcome") for one in handle.status()["decisions"]))
    change = next(one for one in handle.status()["decisions"] if one["kind"] == "scale-out")
    assert (change["from"], change["to"]) == (2, 5)
    assert change["expected"] == "batches fit their period"
    assert change["outcome"]["status"] == "done"
    assert bench.actuator.size == 5


def test_an_action_under_way_is_shown(bench: Bench) -> None:
    bench.actuator.takes = 10_000
    handle = bench.autopilot(FixedPolicy(a_scale(5)))
    wait_for("an action", lambda: handle.status()["action_in_flight"])
    action = handle.status()["action_in_flight"]
    assert (action["from"], action["to"]) == (2, 5)


def test_an_action_under_way_is_closed_in_the_journal_when_the_autopilot_leaves(bench: Bench) -> None:
    bench.actuator.takes = 10_000
    handle = bench.autopilot(FixedPolicy(a_scale(5)))
    wait_for("an action", lambda: handle.status()["action_in_flight"])
    handle.detach()
    with closing(journal_at(bench.directory / "journal.db")) as journal:
        (action,) = journal.actions("app-1")
        assert action.status is Status.UNKNOWN
        assert "detached" in action.detail
        assert journal.unfinished("app-1") == ()
    assert handle.status()["action_in_flight"] is None


def test_observing_only_changes_nothing(bench: Bench) -> None:
    handle = bench.autopilot(FixedPolicy(a_scale(5)), observe=True)
    wait_for("three windows", lambda: len(handle.status()["recent"]) >= 3)
    assert handle.status()["mode"] == "observe"
    assert bench.actuator.begun == []


def test_pause_and_resume(bench: Bench) -> None:
    handle = bench.autopilot()
    handle.pause()
    assert handle.status()["paused"]
    assert "paused" in repr(handle)
    handle.resume()
    assert not handle.status()["paused"]


def test_detach_ends_the_thread_and_may_be_repeated(bench: Bench) -> None:
    handle = bench.autopilot()
    wait_for("its start", lambda: handle.running)
    handle.detach()
    handle.detach()
    assert not handle.running
    assert handle.status()["attached"] is False
    assert "detached" in repr(handle)


def test_the_thread_ends_with_spark(bench: Bench) -> None:
    alive = threading.Event()
    alive.set()
    handle = bench.autopilot(alive=alive.is_set)
    wait_for("a window", lambda: handle.status()["recent"])
    alive.clear()
    wait_for("its end", lambda: not handle.running)


@pytest.mark.parametrize("problem", [SparkUnavailable("gone for a moment"), RuntimeError("a fault of ours")])
def test_errors_stay_in_the_status(bench: Bench, problem: Exception) -> None:
    bench.source.answers = [problem] * 1000
    handle = bench.autopilot()
    wait_for("an error", lambda: handle.status()["error"])
    assert str(problem) in handle.status()["error"]
    assert handle.running
    bench.source.answers.clear()
    wait_for("the end of the error", lambda: handle.status()["error"] is None)


def test_a_journal_that_cannot_be_written_means_no_action_and_no_crash(bench: Bench) -> None:
    (bench.directory / "file").write_text("")
    handle = bench.autopilot(FixedPolicy(a_scale(5)), journal="file/journal.db")
    wait_for("an error", lambda: handle.status()["error"])
    assert handle.running
    assert bench.actuator.begun == []


def test_an_actuator_that_fails_is_said(bench: Bench) -> None:
    bench.actuator.begin_error = ActionFailed("the cluster says no")
    handle = bench.autopilot(FixedPolicy(a_scale(5)))
    wait_for("an outcome", lambda: any(one.get("outcome") for one in handle.status()["decisions"]))
    assert "the cluster says no" in str(handle.status()["decisions"])


def test_a_control_directory_that_cannot_be_used_costs_only_the_socket(bench: Bench) -> None:
    (bench.directory / "run").write_text("not a directory")
    handle = bench.autopilot()
    wait_for("a window", lambda: handle.status()["recent"])
    assert handle.running


def test_a_socket_that_cannot_be_made_is_only_warned_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    # what stands where the socket belongs cannot be removed as a file
    (bench.directory / "run" / "app-1.sock").mkdir(parents=True)
    (bench.directory / "run").chmod(0o700)
    with caplog.at_level(logging.WARNING):
        handle = bench.autopilot()
    assert "app-1.sock" in caplog.text
    wait_for("a window", lambda: handle.status()["recent"])


def test_threads_that_attach_at_once_share_one_autopilot(bench: Bench) -> None:
    found: list[Autopilot] = []
    together = threading.Barrier(8)

    def attach() -> None:
        together.wait()
        found.append(attach_once("app-1", bench.assembled))

    threads = [threading.Thread(target=attach) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert bench.made == [found[0]]
    assert all(handle is found[0] for handle in found)


class SlowSpark:
    """Does not say whether it lives until it is let."""

    def __init__(self) -> None:
        self.asked, self.let = threading.Event(), threading.Event()

    def alive(self) -> bool:
        self.asked.set()
        return self.let.wait(60)


def stopping_slowly(bench: Bench, spark: SlowSpark) -> Autopilot:
    handle = attach_once("app-1", lambda: bench.assembled(alive=spark.alive))
    assert spark.asked.wait(60)
    threading.Thread(target=handle.detach, daemon=True).start()
    wait_for("its stop", lambda: handle.stopping)
    return handle


def test_an_autopilot_that_is_stopping_is_waited_for_and_replaced(bench: Bench) -> None:
    spark = SlowSpark()
    first = stopping_slowly(bench, spark)
    threading.Timer(0.2, spark.let.set).start()
    second = attach_once("app-1", bench.assembled)
    assert second is not first
    assert not first.running
    assert second.running
    assert attach_once("app-1", bench.assembled) is second
    assert control.find_running(bench.directory / "run", None).application == "app-1"


def test_the_wait_for_one_that_does_not_stop_is_bounded(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    spark = SlowSpark()
    first = stopping_slowly(bench, spark)
    second = attach_once("app-1", bench.assembled, patience=0.1)
    assert second is not first
    assert "has not ended" in caplog.text
    spark.let.set()
    wait_for("its end", lambda: not first.running)
    assert attach_once("app-1", bench.assembled) is second, "the end of the first must not unlist the second"


class Answers:
    """What Spark says when asked whether it has stopped, one after the other."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.context_gone = False

    def stopped(self) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def gone(self) -> bool:
        return self.context_gone


SILENCE = SparkUnavailable("no answer")


def test_spark_counts_as_ended_when_it_says_so() -> None:
    spark = Answers(False, True)
    alive = make_patient_check(spark.gone, spark.stopped)
    assert [alive(), alive()] == [True, False]


def test_single_silences_do_not_end_the_autopilot() -> None:
    almost = [SILENCE] * (MOST_UNANSWERED - 1)
    spark = Answers(*almost, False, *almost, False)
    alive = make_patient_check(spark.gone, spark.stopped)
    assert all(alive() for _ in range(2 * MOST_UNANSWERED))


def test_lasting_silence_ends_it_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    spark = Answers(*[SILENCE] * MOST_UNANSWERED)
    alive = make_patient_check(spark.gone, spark.stopped)
    assert [alive() for _ in range(MOST_UNANSWERED)] == [True] * (MOST_UNANSWERED - 1) + [False]
    assert "no answer" in caplog.text


def test_a_context_that_is_gone_ends_it_at_once(caplog: pytest.LogCaptureFixture) -> None:
    spark = Answers()
    spark.context_gone = True
    assert not make_patient_check(spark.gone, spark.stopped)()
    assert caplog.text == ""


def test_commands_arrive_over_the_control_socket(bench: Bench) -> None:
    handle = bench.autopilot()
    running = control.find_running(bench.directory / "run", "words <1>")
    assert running.application == "app-1"
    wait_for("a query", lambda: running.ask("status")["status"]["queries"])
    assert running.ask("pause")["paused"] is True
    assert handle.status()["paused"]
    assert running.ask("resume")["paused"] is False
    with pytest.raises(ActionFailed, match="unknown command 'dance'; known: health, hello"):
        running.ask("dance")


def test_the_socket_goes_with_the_autopilot(bench: Bench) -> None:
    handle = bench.autopilot()
    assert list((bench.directory / "run").glob("*.sock"))
    handle.detach()
    assert not list((bench.directory / "run").glob("*.sock"))


def test_no_socket_unless_wanted(bench: Bench) -> None:
    bench.autopilot(control_socket=False)
    assert not (bench.directory / "run").exists()


def test_notes_are_among_the_warnings(bench: Bench) -> None:
    handle = bench.autopilot(found=Findings(("only observing",)))
    assert handle.status()["warnings"] == ["only observing"]


def test_the_representations_are_short_and_escaped(bench: Bench) -> None:
    handle = bench.autopilot()
    wait_for("a query", lambda: handle.status()["queries"])
    assert "\n" not in repr(handle)
    assert repr(handle) == "<Autopilot of app-1: fixed, act, 4 slots>"
    shown = handle._repr_html_()
    assert "words &lt;1&gt;" in shown
    assert "100/s offered" in shown


def test_importing_penstock_is_light() -> None:
    heavy = ("pyspark", "numpy", "sqlalchemy", "pydantic", "plotly", "rich", "typer", "pandas")
    check = f"import sys, penstock; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
