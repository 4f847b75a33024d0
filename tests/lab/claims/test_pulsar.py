"""The image pipeline on a cluster, from made-up outcomes of its benchmark."""

from types import SimpleNamespace

import numpy as np
import pytest

from penstock_lab.claims import pulsar
from penstock_lab.claims.claim import Verdict


def image_row(system, response, count, recognised=100):
    return {"system": system, "mean_response_s": response, "peak_response_s": 2 * (response or 0),
            "mean_instances": count, "images": 100, "recognised": recognised}  # fmt: skip


def test_policies_on_images_are_held_beside_the_papers_order():
    rows = [
        image_row("threshold", 20.0, 3.0),
        image_row("queueing", 1.0, 5.0),
        image_row("ds2", 2.0, 4.0, 50),
    ]
    *figures, response, instances = pulsar.judge_images(rows, {"ds2_mean_response_s": 2.7})
    assert {finding.verdict for finding in figures} == {Verdict.NOT_COMPARABLE} and len(figures) == 9
    assert (response.verdict, instances.verdict) == (Verdict.REPRODUCED, Verdict.REPRODUCED)
    assert "of 100 images 50 were recognised" in figures[6].why and figures[6].published == 2.7
    swapped = [image_row("threshold", 20.0, 9.0), *rows[1:]]
    assert pulsar.judge_images(swapped, {})[-1].verdict is Verdict.WORSE
    assert len(pulsar.judge_images([image_row("ds2", None, 1.0, 0)], {})) == 3


@pytest.mark.parametrize(
    ("ds2", "queueing", "expected"),
    [
        (7.0, 7.5, Verdict.REPRODUCED),
        (7.03, 7.07, Verdict.NOT_COMPARABLE),
        (7.07, 7.03, Verdict.NOT_COMPARABLE),
        (8.0, 7.0, Verdict.WORSE),
    ],
)
def test_values_that_hardly_differ_are_in_no_order(ds2, queueing, expected):
    counts = {"threshold": 4.0, "queueing": queueing, "ds2": ds2}
    found = pulsar.judge_order("instances", "threshold < ds2 < queueing", counts)
    assert found.verdict is expected and f"ds2 {ds2:g}" in found.measured


def test_responses_are_averaged_second_by_second():
    arrived, times = np.array([10.0, 10.2, 14.0]), np.array([0.5, 0.7, 3.0])
    seen = SimpleNamespace(list_responses=lambda: (arrived, times), instances=(1, 2))
    ((_, seconds, means),) = pulsar.draw_responses({"ds2": seen}).series
    assert (seconds, means) == ([0.0, 4.0], [0.6, 3.0])
    assert pulsar.draw_instances({"ds2": seen}).series == [("ds2", [0.0, 1.0], [1.0, 2.0])]


def waiting(*spans):
    """Images that wait: 400 in these spans of seconds, 20 else."""
    waits = np.full(3000, 20.0)
    for start, end in spans:
        waits[start:end] = 400.0
    return waits


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(10, 100), (900, 1400)], Verdict.REPRODUCED),
        ([(2990, 3000)], Verdict.WORSE),
        # down in the last second, and above for most of the time before
        ([(10, 2999)], Verdict.WORSE),
        ([(10, 100), (900, 1600)], Verdict.WORSE),
        ([], Verdict.NOT_COMPARABLE),
    ],
)
def test_a_queue_that_is_long_for_long_or_in_the_end_is_not_brought_back(spans, expected):
    assert pulsar.judge_waiting(waiting(*spans)).verdict is expected
