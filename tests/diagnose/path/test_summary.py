"""The summaries of section 3.6 and the methods they are compared with."""

from __future__ import annotations

import pytest

from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.summary import summarise
from tests.diagnose.traces import activity, figure_3_3, message, ordered, trace_of


def summary_of(events, length=None):
    graph = build_graph(trace_of(events), gap_threshold_us=0)
    return [summarise(graph, measure_participation(graph, window)) for window in cut_windows(graph, length)]


def test_activities_sum_to_one_in_every_window():
    for summary in summary_of(figure_3_3(), 4):
        assert sum(summary.activity.values()) == pytest.approx(1)


def test_the_worker_on_all_paths_leads_the_straggler_summary_and_not_the_profile():
    (summary,) = summary_of(figure_3_3())
    assert max(summary.worker, key=summary.worker.get) == "W2"
    # Busy time alone hardly tells the workers apart: 10, 7 and 7 of 10 seconds.
    assert summary.profile.worker["W1"] == pytest.approx(7e-6)
    assert summary.worker["W1"] < 0.25


def test_operators_are_normalised_by_their_instances():
    events = ordered(*[activity(f"w{i}", 0, 10, operator="wide") for i in range(4)],
                     *[message(f"w{i}", 10, "n", 12, i) for i in range(4)],
                     activity("n", 12, 22, operator="narrow"))  # fmt: skip
    (summary,) = summary_of(events)
    assert summary.instances == {"wide": 4, "narrow": 1}
    assert summary.operator["narrow"] == pytest.approx(4 * summary.operator["wide"])
    profile = {work.operator: seconds for work, seconds in summary.profile.work.items() if work.operator}
    assert profile == pytest.approx({"wide": 40e-6, "narrow": 10e-6}), "which has it the other way round"


def test_channels_are_ranked_by_participation_not_by_length():
    events = ordered(activity("p", 0, 4), message("p", 4, "q", 6, 1), activity("q", 6, 10),
                     message("p", 1, "r", 9, 2))  # fmt: skip
    (summary,) = summary_of(events)
    assert summary.communication == [("p", "q", pytest.approx(0.2))]


def test_waiting_appears_in_the_profile_and_never_in_participation():
    events = ordered(
        activity("p", 0, 8), activity("q", 0, 1), message("p", 8, "q", 9, 1), activity("q", 9, 10)
    )
    (summary,) = summary_of(events)
    assert "waiting" not in summary.activity
    assert summary.profile.activity["waiting"] == pytest.approx(8e-6)
