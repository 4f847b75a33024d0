from __future__ import annotations

import numpy as np

from penstock.bench import BENCHES
from penstock.bench.autrascale import OPERATORS, PUBLISHED, random_model, run


def test_the_report_has_the_fields_that_scripts_rely_on():
    heard: list[str] = []
    report = run(True, heard.append).to_json()
    assert report["bench"] == "autrascale"
    assert [row["operators"] for row in report["results"]] == list(OPERATORS)
    assert all(row[key] > 0 for row in report["results"] for key in PUBLISHED)
    assert len(report["targets"]) == len(OPERATORS) * len(PUBLISHED)
    assert report["published"]["train_s"] == [0.042, 0.053, 0.065, 0.076, 0.088]
    assert len(heard) == len(OPERATORS)


def test_what_is_timed_is_a_whole_bootstrap_set():
    model, space = random_model(4, 1_000.0, np.random.default_rng(1))
    # three sizes alike, one operator raised in each of four
    assert len(model.latencies) == 7
    for size in model.latencies:
        assert all(low <= count <= space.most for low, count in zip(space.floor, size, strict=True))
    assert all(seconds > 0 for seconds in model.latencies.values())


def test_it_is_listed():
    assert BENCHES["autrascale"] == "penstock.bench.autrascale"
