"""Fitted costs on their way through plain data, whole and broken."""

import json
from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.costs.fit import fit_costs
from penstock.dataflow.costs.model import MOST_TASKS, QueryCosts, StageCost, read_costs, write_costs
from penstock.errors import BadMetrics
from tests.dataflow.synthetic_batches import word_count


def fitted() -> QueryCosts:
    costs = fit_costs(word_count(noise=0.1).runs((500, 1000, 1500, 1200), 10), 10)
    assert isinstance(costs, QueryCosts)
    return costs


def changed(**changes):
    return {**write_costs(fitted()), **changes}


def with_stage(**changes):
    plain = write_costs(fitted())
    plain["stages"][0] = {**plain["stages"][0], **changes}
    return plain


def test_costs_come_back_from_json_as_they_were():
    before = fitted()
    after = read_costs(json.loads(json.dumps(write_costs(before))))
    assert (after.slots, after.stretch, after.per_batch_seconds) == (
        10,
        before.stretch,
        before.per_batch_seconds,
    )
    for old, new in zip(before.stages, after.stages, strict=True):
        np.testing.assert_allclose(new.task_seconds(1000.0, 10), old.task_seconds(1000.0, 10), rtol=1e-6)
        assert (new.operator, new.tasks, new.identified) == (old.operator, old.tasks, old.identified)
        assert new.selectivity == old.selectivity


def test_too_many_tasks_are_not_kept():
    wide = StageCost("wide", 0.1, 0.1, MOST_TASKS + 1, np.full(MOST_TASKS + 1, 1 / (MOST_TASKS + 1)), 1.0)
    assert write_costs(replace(fitted(), stages=(wide,))) is None


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        {},
        changed(slots=0),
        changed(slots="ten"),
        changed(per_batch_seconds=float("nan")),
        changed(stretch=-1.0),
        changed(stages=[]),
        changed(stages="many"),
        changed(stages=[write_costs(fitted())["stages"][0]] * 2),
        with_stage(per_task_seconds=float("inf")),
        with_stage(per_record_seconds="much"),
        with_stage(shares=[]),
        with_stage(shares=[0.5, 0.1]),
        with_stage(shares=[0.0] * (MOST_TASKS + 1)),
    ],
)
def test_what_cannot_be_costs_is_refused(broken):
    with pytest.raises(BadMetrics, match="remembered costs cannot be read"):
        read_costs(broken)
