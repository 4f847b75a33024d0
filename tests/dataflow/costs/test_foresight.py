"""What other sizes would bring, against figures computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.costs.foresight import (
    Outlook,
    estimate_error,
    foresee,
    read_outlook,
    write_outlook,
)
from penstock.dataflow.costs.model import QueryCosts, StageCost
from penstock.dataflow.costs.slots import CostsBySlots
from penstock.errors import BadMetrics


def costs(slots: int = 4, error: float = 0.0) -> QueryCosts:
    """One second a batch; eight tasks of half a second, and 2 ms a record."""
    stage = StageCost("read", 0.5, 0.002, 8, np.full(8, 1 / 8), 1.0)
    return QueryCosts(1.0, (stage,), slots, error_ratio=error)


def outlook(*fits: QueryCosts, **changes: object) -> Outlook:
    made = Outlook(
        query="words",
        costs=CostsBySlots({fit.slots: fit for fit in fits or (costs(),)}),
        rates={"read": 1000.0},
        offered_per_second=1000.0,
        backlog_records=100_000.0,
        period_seconds=10.0,
        slots=4,
        held=4,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_on_more_slots_batches_are_shorter_and_the_backlog_is_read() -> None:
    # 10,000 records a batch: each task 0.5 + 0.002 · 1,250 = 3 s; on 4 slots two waves, 1 + 6 = 7 s
    four = foresee([outlook()], 4)
    assert four.batch_seconds.usual == pytest.approx(7.0)
    assert four.utilisation.usual == pytest.approx(0.7)
    # 2 s of the 7 are there at any rate: a load of 5/8, so 1,600 records/s are carried
    assert foresee([outlook()], 4, seconds=100).backlog_records.usual == pytest.approx(40_000.0)
    assert four.backlog_records.usual == 0.0
    assert foresee([outlook()], 8).batch_seconds.usual == pytest.approx(4.0)
    assert not four.grows


def test_on_too_few_slots_batches_and_backlog_grow() -> None:
    # one slot has 0.002 s of work a record and 1,000 of them a second: 2 s a second
    one = foresee([outlook()], 1, seconds=600)
    assert one.grows
    # a batch of 600 s of input takes 1 + 8 · 0.5 + 1,200 = 1,205 s, so 600 / 1,205 of the input is read
    expected = 100_000 + 1000 * 600 * (1 - 600 / 1205)
    assert one.backlog_records.usual == pytest.approx(expected)


def test_the_error_is_the_usual_one_and_grows_with_each_doubling_away_from_what_was_seen() -> None:
    known = CostsBySlots({4: costs(4, 0.1), 8: costs(8, 0.1)})
    assert estimate_error(known, 4) == estimate_error(known, 8) == pytest.approx(0.1)
    assert estimate_error(known, 16) == pytest.approx(0.2)
    assert estimate_error(known, 2) == pytest.approx(0.2)
    seen = foresee([outlook(costs(4, 0.1))], 4)
    assert seen.batch_seconds.low == pytest.approx(7 / 1.1)
    assert seen.batch_seconds.high == pytest.approx(7 * 1.1)


def test_queries_share_slots_by_need_and_the_busiest_is_told() -> None:
    calm = outlook(query="calm", rates={"read": 100.0}, offered_per_second=100.0, backlog_records=0.0)
    both = foresee([outlook(), calm], 8)
    # four slots each, as alone
    assert both.batch_seconds.usual == pytest.approx(7.0)
    assert both.slots == 8


def test_an_operator_that_cannot_be_scaled_gains_nothing() -> None:
    fixed = outlook(fixed=frozenset({"read"}))
    assert foresee([fixed], 8).batch_seconds.usual == pytest.approx(7.0)


def test_an_outlook_survives_being_written() -> None:
    made = outlook(costs(4, 0.05), costs(8, 0.05), fixed=frozenset({"other"}), alone=False)
    again = read_outlook(orjson.loads(orjson.dumps(write_outlook(made))))
    assert again.fixed == made.fixed and again.alone is False
    for slots in (1, 3, 8, 20):
        assert foresee([again], slots) == foresee([made], slots)
    with pytest.raises(BadMetrics, match="cannot be read"):
        read_outlook({"fits": []})


@given(st.integers(1, 64), st.floats(0.0, 0.5), st.floats(1.0, 1e5), st.floats(0.0, 1e7))
def test_edges_enclose_what_is_usual(slots: int, error: float, rate: float, backlog: float) -> None:
    made = outlook(costs(4, error), rates={"read": rate}, offered_per_second=rate, backlog_records=backlog)
    told = foresee([made], slots)
    for span in (told.batch_seconds, told.utilisation, told.backlog_records):
        assert 0 <= span.low <= span.usual <= span.high
    assert told.backlog_records.usual <= foresee([made], max(1, slots // 2)).backlog_records.usual + 1e-6
