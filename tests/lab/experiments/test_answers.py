"""Made logs: the model plays a scene as its causes say, its log is sound, and an answer is judged by both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock_lab.experiments.answers.applications import draw_batch_application
from penstock_lab.experiments.answers.causes import CAUSES
from penstock_lab.experiments.answers.cluster import play
from penstock_lab.experiments.answers.event_log import write_lines
from penstock_lab.experiments.answers.scene import JobWork, Machine, Piece, Scene, StageWork
from penstock_lab.experiments.answers.trials import (
    MadeApplication,
    choose_first,
    list_cases,
    read_first,
    run_case,
    summarise_cases,
)


def one_stage(*seconds, slots=2):
    job = JobWork((StageWork("Scan", tuple(Piece(one, 100, 1000) for one in seconds)),))
    return Scene("plain", (job,), (Machine("1", "host-0", slots, 2.0),))


def test_tasks_fill_the_slots_one_after_the_other():
    history = play(one_stage(2.0, 2.0, 2.0, 2.0), seed=1)
    (job,) = history.jobs
    assert job.ended - job.started == pytest.approx(4.0, rel=0.2)  # four tasks of 2 s on two slots
    starts = sorted(task.launch for task in history.tasks)
    assert starts[1] - starts[0] < 0.1 < starts[2] - starts[1]


def test_a_slow_host_stretches_what_is_computed():
    scene = one_stage(2.0)
    slow = replace(scene, machines=(replace(scene.machines[0], slowness=4.0),))
    assert play(slow, 1).ended - play(scene, 1).ended == pytest.approx(6.0, rel=0.2)


def test_the_same_seed_gives_the_same_log():
    scene = draw_batch_application(3)
    assert write_lines(play(scene, 5)) == write_lines(play(scene, 5))
    assert write_lines(play(scene, 5)) != write_lines(play(scene, 6))


@pytest.mark.parametrize("name", CAUSES)
def test_a_made_log_is_a_sound_one(name):
    history = play(MadeApplication((CAUSES[name],), 1).build_scene(), 1)
    log = read_log(write_lines(history))
    assert set(log.warnings) <= {"finished tasks without metrics"}
    assert len(log.tasks) == len([task for task in history.tasks if task.launch <= task.finish])
    assert (log.end - log.start) / 1000 == pytest.approx(history.ended, abs=0.01)
    assert (np.diff([log.jobs[number].started for number in sorted(log.jobs)]) > 0).all()


@pytest.mark.parametrize("name", [name for name in CAUSES if name != "failed job"])
def test_a_cause_costs_time(name):
    case = MadeApplication((CAUSES[name],), 2)
    assert play(case.build_scene(), 1).ended > play(case.build_scene(CAUSES[name]), 1).ended


def test_there_are_enough_logs_and_no_two_alike():
    names = [case.name for case in list_cases(range(4))]
    assert len(names) == len(set(names)) >= 40
    assert {name for case in list_cases(range(1)) for name in (one.name for one in case.causes)} == set(
        CAUSES
    )


def test_what_failed_comes_first_and_a_pause_never_hides_the_rest():
    skew, failed, idle, gc = (CAUSES[name] for name in ("skew", "failed tasks", "idle shell", "gc"))
    assert choose_first({skew: 50.0, failed: 1.0}) is failed
    assert choose_first({skew: 50.0, idle: 900.0}) is skew
    assert choose_first({skew: 5.0, gc: 9.0}) is gc
    assert choose_first({idle: 900.0}) is idle


def row(right, error, predicted=1.0):
    return {"right": right, "error": error, "gain_s": 1.0, "predicted_s": predicted}


def test_a_wrong_answer_and_a_wrong_gain_show_in_the_summary():
    good = summarise_cases([row(True, 0.02)] * 20)
    assert (good["right_share"], good["median_error"], good["predicted_share"]) == (1.0, 0.02, 1.0)
    assert summarise_cases([row(True, 0.02), row(False, 0.0)])["right_share"] == 0.5
    assert summarise_cases([row(True, 0.02), row(True, 0.9), row(True, 0.9)])["median_error"] == 0.9
    assert summarise_cases([row(True, None, None), row(True, 0.1)])["predicted_share"] == 0.5
    assert np.isnan(summarise_cases([row(False, 0.0)])["median_error"])


def test_another_cause_than_that_of_the_log_is_a_wrong_answer():
    """The log of a slow driver, asked as if it were one of skew."""
    driver = CAUSES["slow driver"]
    found = diagnose_log(read_log(write_lines(play(MadeApplication((driver,), 1).build_scene(), 1))), Span())
    assert read_first(found, driver)[0] in driver.told_as
    assert read_first(found, CAUSES["skew"])[0] not in CAUSES["skew"].told_as


@pytest.mark.parametrize(
    "names", [("gc",), ("dynamic allocation",), ("lost executors",), ("idle shell", "skew")]
)
def test_the_cause_is_found_and_its_gain_is_near_that_of_the_rerun(names):
    found = run_case(MadeApplication(tuple(CAUSES[name] for name in names), 1))
    assert found["right"]
    assert found["error"] < 0.2
