"""The cost of a record is fitted from the batches of a run of a fixed size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ActionFailed
from penstock_lab.experiments.field.costs import fit_cost, main, measure_cost, tell_cost
from penstock_lab.experiments.field.plan import HOST, FieldTrial
from penstock_lab.experiments.field.rows import Ran
from penstock_lab.experiments.field.trace import DoneBatch, FieldTrace, fit_line
from penstock_lab.jobs.catalog import find_job

SIZES = [300, 100, 100, 400, 400, 200, 200, 300]


def batches_of(sizes, fixed, per_record, query="q", start=45.0, every=5.0):
    return tuple(
        DoneBatch(query, number, start + every * number, fixed + per_record * size, size)
        for number, size in enumerate(sizes)
    )


def a_run(done, job="static-join", executors=4):
    trial = FieldTrial(find_job(job), "fixed", "search", executors, 100.0, 120.0, "stairs")
    return Ran(trial, 0.0, FieldTrace((), done))


def test_a_cost_by_hand():
    # 1 s and 4 ms a record on four slots: a record keeps a slot for 16 ms, of which 0.2 core computes 3.2 ms
    found = fit_cost(a_run(batches_of(SIZES, 1.0, 0.004)))
    assert found.slot_seconds == pytest.approx(0.016)
    assert found.cost.computing_seconds == pytest.approx(3.2e-3)
    assert (found.batch_seconds, found.batches) == (pytest.approx(1.0), 8)
    assert found.records_per_second == pytest.approx(2.2 / 0.016)


def test_what_is_waited_for_is_no_computing():
    # 10 ms of waiting and 0.4 ms of computing on 0.2 core: 12 ms of a slot, 3 ms each on four
    found = fit_cost(a_run(batches_of(SIZES, 0.5, 0.003), "small-files-lookup"))
    assert (found.cost.waiting_seconds, found.cost.computing_seconds) == (0.010, pytest.approx(4e-4))


def test_the_time_before_code_is_compiled_does_not_count():
    cold = batches_of([300, 300], 20.0, 0.0, start=2.0)
    assert fit_cost(a_run(cold + batches_of(SIZES, 1.0, 0.004))).slot_seconds == pytest.approx(0.016)


def test_queries_that_read_the_same_are_added_up():
    both = batches_of(SIZES, 1.0, 0.004) + batches_of(SIZES, 2.0, 0.002, "other", start=46.0)
    found = fit_cost(a_run(both, "two-queries"))
    assert found.slot_seconds == pytest.approx(4 * 0.006)
    assert found.batch_seconds == pytest.approx(2.0)


@given(
    st.lists(st.integers(1, 1000), min_size=9, max_size=20, unique=True),
    st.floats(0, 5),
    st.floats(1e-4, 1e-2),
)
def test_a_line_is_found_whatever_one_slow_batch_says(sizes, fixed, per_record):
    done = batches_of(sizes, fixed, per_record)
    slow = (replace(done[0], seconds=done[0].seconds + 60.0), *done[1:])
    line = fit_line(done if max(sizes) >= 1.2 * min(sizes) else ())
    if line is not None:
        assert line == (pytest.approx(fixed, abs=1e-6), pytest.approx(per_record, rel=1e-6))
        assert fit_line(slow)[1] == pytest.approx(per_record, rel=1e-6)


@pytest.mark.parametrize(
    "done", [(), batches_of([100] * 8, 1.0, 0.0), batches_of(SIZES, 5.0, -0.001), batches_of(SIZES[:3], 1, 1)]
)
def test_a_run_that_shows_no_cost_is_told(done):
    with pytest.raises(ActionFailed, match="static-join: "):
        fit_cost(a_run(done))


class Slots:
    """A ground on which a record keeps a slot for so long, whatever the load was made from."""

    def __init__(self, slot_seconds: float) -> None:
        self.slot_seconds, self.rates = slot_seconds, []

    def run(self, trial: FieldTrial) -> Ran:
        self.rates.append(trial.rate)
        sizes = [5 * trial.rate * share for share in (0.75, 0.25, 0.25, 1.0, 1.0, 0.5, 0.5, 0.75)]
        done = batches_of(sizes, 1.0, self.slot_seconds / trial.executors)
        return Ran(trial, 0.0, FieldTrace((), done))


def test_a_load_is_made_again_until_it_fits_the_cost():
    job = find_job("numpy-scoring")
    right, wrong = Slots(job.cost.slot_seconds(HOST.cpu)), Slots(10 * job.cost.slot_seconds(HOST.cpu))
    assert measure_cost(right, job).cost.computing_seconds == pytest.approx(170e-6)
    assert len(right.rates) == 1
    assert measure_cost(wrong, job).cost.computing_seconds == pytest.approx(1700e-6)
    assert len(wrong.rates) == 2 and wrong.rates[0] == pytest.approx(10 * wrong.rates[1], rel=0.1)


def test_a_cost_is_told_as_a_line_of_the_table():
    line = tell_cost(fit_cost(a_run(batches_of(SIZES, 1.0, 0.004))))
    assert line.startswith(
        '"static-join": Cost(0, 0.0032),  # 16 ms of a slot a record, 1 s a batch, 8 batches'
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["kafka-window"], "did you mean 'kafka-windows'"),
        (["available-now"], "ends by itself"),
        (["no-trigger", "--executors", "9"], "1 to 6 executors, not 9"),
    ],
)
def test_bad_usage_is_one_clear_line(arguments, complaint, capsys):
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert complaint in told and told.count("\n") == 1
