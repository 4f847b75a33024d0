from __future__ import annotations

from penstock.bench.decision import EDGES_PER_OPERATOR, QUICK_SIZES, random_window, run
from penstock.decide.ds2 import Ds2Policy
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.policy import Scale


def test_the_report_has_the_fields_that_scripts_rely_on():
    heard: list[str] = []
    report = run(True, heard.append).to_json()
    assert report["bench"] == "decision"
    assert [row["operators"] for row in report["results"]] == list(QUICK_SIZES)
    assert all(row["seconds"] > 0 for row in report["results"])
    assert report["summary"]["growth_exponent"] > 0
    assert len(report["targets"]) == 2
    assert len(heard) == len(QUICK_SIZES)


def test_what_is_timed_is_a_real_decision_on_a_seeded_graph():
    window = random_window(50, 3, seed=1)
    (query,) = window.queries
    assert len(query.graph.edges) == 50 * EDGES_PER_OPERATOR
    assert query.graph == random_window(50, 3, seed=1).queries[0].graph
    answer = Ds2Policy(Ds2Settings()).propose(window)
    assert isinstance(answer, Scale)
    assert set(answer.parallelism) == set(query.graph.index)
