"""Time in which no job ran is told apart, and the answer is about the rest."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.path.spans import Span
from tests.diagnose.eventful_logs import EventfulLog, elastic_job, waves


def session(name="Spark shell", pause=420_000):
    """Three jobs of a minute each, with a pause before each and behind the last."""
    log, at = EventfulLog().named(name).executor("1", 0, cores=2), 0
    for job in range(3):
        at += pause
        log.job(job, at, [job]).attempt(job, 0, at, 120)
        at = waves(log, job, ["1", "1"], 120, at, 1000)
        log.job_end(job, at)
    return log.application_end(at + pause).read()


def test_an_idle_shell_is_told_so_and_asked_about_its_jobs():
    found = diagnose_log(session(), Span())
    assert "No job ran in 28 min of 31 min" in found.answer
    assert "driver's own code" not in " ".join(one.advice for one in found.findings)
    assert found.findings[0].cause == "run"
    assert found.findings[0].share > 0.9
    assert found.idle.seconds == pytest.approx(4 * 420, rel=0.01)


def test_a_program_that_works_between_its_jobs_is_still_told_to_look_at_the_driver():
    found = diagnose_log(session("etl", pause=100_000), Span())
    assert found.findings[0].cause == "program"
    assert found.idle is None


def test_a_session_without_a_name_is_known_by_its_long_pauses():
    assert diagnose_log(session("app", pause=900_000), Span()).idle is not None


def test_slots_that_nobody_used_are_counted():
    found = diagnose_log(elastic_job(executors=8, tasks=4).read(), Span())
    # eight slots from 0.5 s to 2.1 s, one of them to 2.2 s; four tasks of one second
    assert found.slots.slot_seconds == pytest.approx(8 * 1.6 + 0.1)
    assert found.slots.busy_seconds == pytest.approx(4)
