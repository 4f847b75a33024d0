"""The timed work is real, and the reports have the fields that scripts rely on."""

from __future__ import annotations

import numpy as np

from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.policy import Scale
from penstock_lab.experiments.kernels import (
    AUTRASCALE_OPERATORS,
    EDGES_PER_OPERATOR,
    QUICK_DECISION_SIZES,
    make_model,
    make_window,
)
from penstock_lab.experiments.measurement import Extent
from penstock_lab.report.bench import BenchReport
from penstock_lab.report.catalog import BENCHES


def run_quick(bench):
    heard: list[str] = []
    measured, judged = BENCHES[bench].run(Extent(quick=True), heard.append)
    return BenchReport(bench, measured, judged).to_json(), heard


def test_the_report_on_decisions_has_its_fields():
    report, heard = run_quick("decision")
    assert report["bench"] == "decision"
    assert [row["operators"] for row in report["results"]] == list(QUICK_DECISION_SIZES)
    assert all(row["seconds"] > 0 for row in report["results"])
    assert report["summary"]["growth_exponent"] > 0
    assert len(report["targets"]) == 2
    assert len(heard) == len(QUICK_DECISION_SIZES)


def test_what_is_timed_is_a_real_decision_on_a_seeded_graph():
    window = make_window(50, 3, seed=1)
    (query,) = window.queries
    assert len(query.graph.edges) == 50 * EDGES_PER_OPERATOR
    assert query.graph == make_window(50, 3, seed=1).queries[0].graph
    answer = Ds2Policy(Goals()).propose(window)
    assert isinstance(answer, Scale)
    assert set(answer.parallelism) == set(query.graph.index)


def test_the_report_on_autrascale_has_its_fields():
    report, heard = run_quick("autrascale")
    assert report["bench"] == "autrascale"
    assert [row["operators"] for row in report["results"]] == list(AUTRASCALE_OPERATORS)
    keys = ("train_s", "use_s", "transfer_s")
    assert all(row[key] > 0 for row in report["results"] for key in keys)
    assert len(report["targets"]) == len(AUTRASCALE_OPERATORS) * len(keys)
    assert report["published"]["train_s"] == [0.042, 0.053, 0.065, 0.076, 0.088]
    assert len(heard) == len(AUTRASCALE_OPERATORS)


def test_what_is_timed_is_a_whole_bootstrap_set():
    model, space = make_model(4, 1_000.0, np.random.default_rng(1))
    # three sizes alike, one operator raised in each of four
    assert len(model.latencies) == 7
    for size in model.latencies:
        assert all(low <= count <= space.most for low, count in zip(space.floor, size, strict=True))
    assert all(seconds > 0 for seconds in model.latencies.values())
