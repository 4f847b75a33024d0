"""The timeline: what executors were busy with, when jobs ran, and where one critical path was."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock.diagnose.timeline import BINS, MOST_JOBS, draw_jobs, measure_use
from tests.diagnose.eventful_logs import EventfulLog, elastic_job
from tests.diagnose.logs import BASE, many_jobs, skewed_job, streaming_job


def test_busy_slots_are_spread_over_the_bins():
    # two slots from 0 s on; one task from 1 s to 3 s, one from 2 s to 3 s; four bins of 1 s
    log = EventfulLog().executor("1", 0, cores=2).job(0, 1000, [0]).attempt(0, 0, 1000, 2)
    log.task(0, "1", 1000, 3000).task(0, "1", 2000, 3000).job_end(0, 4000).application_end(4000)
    (line,) = measure_use(log.read(), bins=4)
    assert (line.executor, line.slots, line.busy) == ("1", 2, pytest.approx((0, 0.5, 1, 0)))
    assert (line.start_ms, line.end_ms) == (BASE, BASE + 4000)
    assert (line.slot_seconds, line.busy_seconds, line.tasks) == (8, 3, 2)


def test_an_executor_that_came_late_and_went_is_measured_while_it_was_there():
    lines = measure_use(elastic_job(executors=3, tasks=3).read(), bins=10)
    assert [line.executor for line in lines] == ["1", "2", "3"]
    assert [line.end_ms - BASE for line in lines] == [2200, 2100, 2100]
    assert lines[1].reason == "Executor killed by driver."
    assert all(0 <= share <= 1 for line in lines for share in line.busy)
    # the bin in which it came counts the part in which it was there
    assert lines[1].slot_seconds == pytest.approx(1.6)


def test_jobs_beside_each_other_have_lanes_of_their_own():
    log = EventfulLog().executor("1", 0)
    log.job(0, 1000, [0]).job(1, 2000, [1]).job_end(0, 3000).job(2, 3000, [2]).job_failed(1, 5000, "no")
    bars = draw_jobs(log.job_end(2, 6000).application_end(10_000).read())
    assert [(bar.jobs, bar.lane, bar.failed) for bar in bars] == [
        ((0,), 0, False), ((1,), 1, True), ((2,), 0, False),
    ]  # fmt: skip


def test_many_jobs_are_joined_to_bars_that_can_be_seen():
    bars = draw_jobs(read_log(many_jobs(3 * MOST_JOBS).lines))
    assert 0 < len(bars) <= MOST_JOBS
    assert sum(len(bar.jobs) for bar in bars) == 3 * MOST_JOBS


def test_the_path_goes_from_the_driver_over_the_straggler_back_to_the_driver():
    timeline = diagnose_log(read_log(skewed_job().lines), Span()).timeline
    rows = [piece.row for piece in timeline.path]
    assert rows[0] == rows[-1] == "driver"
    longest = max(timeline.path, key=lambda piece: piece.seconds)
    assert (longest.row, longest.stage, longest.operator) == ("2", (1, 0), "stage 1: Exchange")
    assert longest.seconds == pytest.approx(5.5, abs=0.5)
    whole = sum(piece.seconds for piece in timeline.path)
    assert whole == pytest.approx(8.5, abs=0.1)
    assert len(timeline.executors[0].busy) == BINS


def test_an_operator_of_a_streaming_query_is_told_with_the_stage_of_its_batch():
    timeline = diagnose_log(read_log(streaming_job(4).lines), Span()).timeline
    found = [piece.stage for piece in timeline.path if piece.operator.startswith("counts")]
    assert list(dict.fromkeys(found)) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_part_of_the_time_has_a_timeline_of_that_part():
    span = Span(start_us=(BASE + 2000) * 1000, end_us=(BASE + 4000) * 1000)
    timeline = diagnose_log(read_log(many_jobs(5).lines), span).timeline
    assert (timeline.start_ms, timeline.end_ms) == (BASE + 2000, BASE + 4000)
    assert {number for bar in timeline.jobs for number in bar.jobs} == {1, 2}
