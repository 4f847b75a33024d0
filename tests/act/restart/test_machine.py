"""A supervised driver, step by step, with time passed in."""

from __future__ import annotations

from penstock.act.restart import machine
from penstock.act.restart.machine import (
    Asked,
    Attached,
    BatchEnded,
    Close,
    Exited,
    Finish,
    Remember,
    Signal,
    Start,
    Tick,
)
from penstock.act.restart.settings import RestartSettings
from penstock.decide.outcome import Status

OLD = {"spark.executor.memory": "1g"}
NEW = {"spark.executor.memory": "2g"}


class Story:
    """Events at their times; keeps what was instructed."""

    def __init__(self) -> None:
        self.state, first = machine.begin_supervision(
            0.0, OLD, RestartSettings(stop_timeout=60, verify_timeout=100)
        )
        self.told: list[machine.Instruction] = list(first)

    def at(self, now: float, event: machine.Event) -> tuple[machine.Instruction, ...]:
        self.state, told = machine.step_supervision(self.state, now, event)
        self.told += told
        return told

    @property
    def closed(self) -> list[Close]:
        return [one for one in self.told if isinstance(one, Close)]


def restarted() -> Story:
    """Asked at 100 after a batch at 95, stopped at 110, and started with the new settings."""
    story = Story()
    story.at(95, BatchEnded(95.0))
    assert story.at(100, Asked(7, NEW)) == (Remember(), machine.TellToStop())
    story.at(105, BatchEnded(104.0))
    story.at(108, machine.QueriesStopped())
    assert story.at(110, Exited(0)) == (Remember(), Start(NEW))
    assert story.state.phase is machine.RestartPhase.VERIFYING
    return story


def test_it_begins_with_the_settings_that_are_known():
    assert Story().told == [Remember(), Start(OLD)]


def test_a_restart_that_works_is_done_and_its_pause_is_from_batch_to_batch():
    story = restarted()
    story.at(120, Attached(NEW))
    close, remember = story.at(131, BatchEnded(130.0))
    assert isinstance(close, Close) and isinstance(remember, Remember)
    assert (close.status, close.pause, close.seconds) == (Status.DONE, 26.0, 31.0)
    assert (close.request.action_id, close.works, close.detail) == (7, True, "paused for 26.0 s")
    assert story.state.phase is machine.RestartPhase.RUNNING and story.state.proven == NEW
    assert story.at(500, Exited(3)) == (Remember(), Finish(3))


def test_settings_that_fail_are_replaced_by_the_old_ones():
    story = restarted()
    assert story.at(115, Exited(52)) == (Remember(), Start(OLD))
    (close, _) = story.at(140, BatchEnded(139.0))
    assert isinstance(close, Close)
    assert (close.status, close.pause, close.works) == (Status.FAILED, 35.0, False)
    assert "ended with code 52; the old settings run again" in close.detail
    assert story.state.proven == OLD and story.state.phase is machine.RestartPhase.RUNNING


def test_no_batch_in_time_ends_it_ever_harder_and_falls_back():
    story = restarted()
    assert story.at(209, Tick()) == ()
    assert story.at(211, Tick()) == (Remember(), machine.TellToStop())
    assert story.at(211 + machine.EXIT_SECONDS, Tick()) == (Signal(),)
    late = 211 + machine.EXIT_SECONDS + machine.KILL_SECONDS
    assert story.at(late, Tick()) == (Signal(kill=True),)
    assert story.at(late + 1, Exited(137)) == (Remember(), Start(OLD))
    story.at(late + 20, BatchEnded(late + 20))
    assert "no batch ended within 100 s" in story.closed[-1].detail


def test_both_failing_is_the_end():
    story = restarted()
    story.at(115, Exited(1))
    (close, _, finish) = story.at(120, Exited(0))
    assert isinstance(close, Close) and close.status is Status.FAILED
    assert finish == Finish(1)
    assert story.at(121, Tick()) == ()


def test_old_settings_without_a_batch_are_left_to_run():
    story = restarted()
    story.at(115, Exited(1))
    (close, _) = story.at(216, Tick())
    assert isinstance(close, Close) and close.status is Status.FAILED
    assert story.state.phase is machine.RestartPhase.RUNNING


def test_what_fails_with_the_old_settings_as_well_is_not_held_against_the_new_ones():
    """A disk that is full ends every driver, and settings that are blamed are never tried again."""
    for happens in (Exited(1), Tick()):
        story = restarted()
        story.at(115, Exited(1))
        close, *_ = story.at(216, happens)
        assert isinstance(close, Close) and close.works
        assert "with the old settings" in close.detail


def test_without_data_a_query_that_idles_is_enough_when_the_time_is_over():
    story = restarted()
    assert story.at(150, BatchEnded(150.0, idle=True)) == ()
    (close, _) = story.at(211, Tick())
    assert isinstance(close, Close) and close.status is Status.DONE and close.pause is None
    assert "no data came" in close.detail


def test_settings_that_the_script_sets_itself_are_not_taken():
    story = restarted()
    story.at(120, Attached(OLD))
    (close, _) = story.at(131, BatchEnded(130.0))
    assert isinstance(close, Close) and close.status is Status.FAILED
    assert close.not_taken == ("spark.executor.memory",) and "the script sets" in close.detail
    assert story.state.proven == {}


def test_a_script_that_ends_by_itself_is_not_started_again():
    story = restarted()
    (close, _, finish) = story.at(115, Exited(0))
    assert isinstance(close, Close) and close.status is Status.UNKNOWN and finish == Finish(0)
    assert Story().at(5, Exited(0)) == (Remember(), Finish(0))


def test_a_driver_that_does_not_stop_is_made_to():
    story = Story()
    story.at(100, Asked(7, NEW))
    assert story.at(159, Tick()) == ()
    assert story.at(160, Tick()) == (Signal(),)
    assert story.at(160 + machine.KILL_SECONDS, Tick()) == (Signal(kill=True),)
    assert story.at(180, Exited(137)) == (Remember(), Start(NEW))


def test_a_script_that_does_not_end_once_its_queries_have_is_made_to_soon():
    story = Story()
    story.at(100, Asked(7, NEW))
    story.at(104, machine.QueriesStopped())
    assert story.at(104 + machine.EXIT_SECONDS - 1, Tick()) == ()
    assert story.at(104 + machine.EXIT_SECONDS, Tick()) == (Signal(),)


def test_a_second_request_meanwhile_is_refused():
    story = restarted()
    refusal = machine.Refuse(machine.Request(8, OLD, 112), "another restart is under way")
    assert story.at(112, Asked(8, OLD)) == (refusal,), "the driver is told, and goes on"
    assert story.state.request is not None and story.state.request.action_id == 7


def test_an_interruption_begins_nothing_new():
    story = restarted()
    close, remember, signal = story.at(115, machine.Interrupted())
    assert isinstance(close, Close) and close.status is Status.UNKNOWN
    assert (remember, signal) == (Remember(), Signal())
    assert story.at(116, Exited(143)) == (Remember(), Finish(143))
    typed = Story()
    assert typed.at(10, machine.Interrupted(from_terminal=True)) == (), (
        "the terminal has told the driver itself"
    )
    assert typed.at(10 + machine.EXIT_SECONDS, Tick()) == (Signal(),)
    calm = Story()
    assert calm.at(10, machine.Interrupted()) == (Signal(),)
    assert calm.at(10 + machine.KILL_SECONDS, Tick()) == (Signal(kill=True),)
