"""Capacity curves, and the oracle that knows them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.simulate.capacity import Linear, Table, Usl, tabulate_capacity
from penstock.simulate.measures import least_instances, true_demand
from tests.simulate.experiments import an_experiment


def test_linear():
    assert tabulate_capacity(Linear(), 0.01, 3).tolist() == pytest.approx([0, 100, 200, 300])


def test_universal_scalability_law_by_hand():
    # 4 / (1 + 0.1·3 + 0.01·4·3) = 4 / 1.42
    curve = Usl(kind="usl", alpha=0.1, beta=0.01)
    assert tabulate_capacity(curve, 0.01, 4)[4] == pytest.approx(400 / 1.42)
    assert tabulate_capacity(curve, 0.01, 4)[1] == pytest.approx(100)


def test_a_table_is_linear_between_its_points_and_flat_after_them():
    curve = Table(kind="table", capacity={4: 300, 2: 200})
    assert tabulate_capacity(curve, None, 6).tolist() == pytest.approx([0, 100, 200, 250, 300, 300, 300])


def test_no_service_time_is_no_limit():
    assert tabulate_capacity(Linear(), None, 1).tolist() == [0, np.inf]


CURVES = st.one_of(
    st.just({"kind": "linear"}),
    st.builds(
        lambda alpha, beta: {"kind": "usl", "alpha": alpha, "beta": beta},
        st.floats(0, 0.2),
        st.floats(0, 0.01),
    ),
)


@settings(max_examples=60, deadline=None)
@given(curve=CURVES, rate=st.integers(0, 20_000), selectivity=st.sampled_from([0.1, 1, 7]))
def test_the_oracle_is_minimal(curve, rate, selectivity):
    operators = {
        "parse": {"inputs": ["events"], "service_time": "1ms", "selectivity": selectivity, "curve": curve},
        "count": {"inputs": ["parse"], "service_time": "2ms", "curve": curve},
    }
    experiment = an_experiment(
        duration=3, sources={"events": {"rate": f"constant:{rate}"}}, operators=operators
    )
    least, demand = least_instances(experiment)[0], true_demand(experiment)[0]
    for number in (1, 2):
        table, count = experiment.capacities[number], int(least[number])
        tolerated = demand[number] * (1 - 1e-9)
        if table.max() >= tolerated:
            assert table[count] >= tolerated
        else:
            assert table[count] == table.max()
        assert count == 1 or (table[:count] < tolerated).all() or table.max() < tolerated


def test_the_oracle_follows_the_load_and_a_slow_service():
    slow = {"operator": "parse", "start": 20, "end": 30, "capacity": 0.5}
    sources = {"events": {"rate": "steps:0=1000,10=3000"}}
    experiment = an_experiment(duration=40, sources=sources, slowdowns=[slow])
    least = least_instances(experiment)
    assert least[5].tolist() == [1, 1, 2]
    assert least[15].tolist() == [1, 3, 6]
    assert least[25].tolist() == [1, 6, 6]
