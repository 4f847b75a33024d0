"""A report judges its targets itself and speaks plain JSON."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from penstock.errors import BadInput
from penstock_lab.claims.claim import Claim, Judged, complete_claims
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.report.bench import BenchReport
from penstock_lab.report.catalog import BENCHES, PARTS


@pytest.mark.parametrize(
    ("target", "measured", "met"),
    [
        ("<= 2", 2, True),
        ("<= 2", 2.01, False),
        (">= 0.99", 0.99, True),
        (">= 0.99", 0.98, False),
        ("< 0.001", 0.0009, True),
        ("< 0.001", 0.001, False),
        ("> 0", 0, False),
        ("== 0", 0, True),
        ("<= 2", None, False),
        ("<= 2", float("nan"), False),
    ],
)
def test_met_is_computed_from_the_comparison(target, measured, met):
    assert Claim.judge_target("steps", target, measured).met is met


@pytest.mark.parametrize("target", ["about 2", "<= two", "", "2"])
def test_a_target_that_cannot_be_judged_is_refused(target):
    with pytest.raises(BadInput):
        Claim.judge_target("steps", target, 1.0)


def report():
    measured = Measurement(
        rows=[
            {"case": "under", "system": "ds2", "steps": np.int64(1)},
            {"case": "over", "system": "ds2", "steps": 2, "detail": [1.0, 2.0]},
        ],
        summary={"ratio": np.float64(0.5), "spread": float("nan")},
        notes=["the second target was not measured [here]"],
    )
    targets = [Claim.judge_target("steps", "<= 2", 2), Claim.judge_target("never measured", "<= 1", None)]
    return BenchReport("example", measured, Judged(targets, published={"dhalion_steps": 6}))


def test_json_has_the_contract_fields_and_no_nan():
    text = json.dumps(report().to_json(), allow_nan=False)
    parsed = json.loads(text)
    assert parsed["summary"] == {"ratio": 0.5, "spread": None}
    assert parsed["results"][0] == {"case": "under", "system": "ds2", "steps": 1}
    assert parsed["targets"][0] == {"name": "steps", "target": "<= 2", "measured": 2, "met": True}
    assert parsed["targets"][1]["met"] is False
    assert parsed["published"] == {"dhalion_steps": 6}
    assert set(parsed) == {"bench", "summary", "results", "targets", "published", "notes"}


def test_a_case_that_failed_misses_a_target_of_its_own():
    whole = report()
    measured = replace(whole.measured, failures=["over could not be measured: lost"])
    partly = replace(whole, measured=measured, judged=complete_claims(measured, whole.judged))
    assert [target.met for target in partly.judged.targets] == [True, False, False]
    assert partly.to_json()["notes"][0] == "over could not be measured: lost"


def test_the_table_shows_every_column_and_the_notes():
    out = io.StringIO()
    report().print_table(Console(file=out, width=160))
    text = out.getvalue()
    for expected in ("under", "over", "detail", "dhalion_steps", "[here]", "NOT MET"):
        assert expected in text


def test_a_wide_table_is_cut_between_columns_and_names_its_rows_in_each_part():
    out = io.StringIO()
    rows = [{"case": f"case-{n}", **{f"figure_{k}": 1000 * k + n for k in range(12)}} for n in (1, 2)]
    BenchReport("wide", Measurement(rows), Judged([])).print_table(Console(file=out, width=60))
    text = out.getvalue()
    assert all(len(line) <= 60 for line in text.splitlines())
    assert all(str(1000 * k + n) in text for k in range(12) for n in (1, 2))
    assert text.count("case-1") == text.count("case-2") > 1


BENCH_NAMES = (
    "answers autrascale bottlenecks convergence critical-path decision event-log faults field fleet images "
    "kafka migration nexmark nexmark-migration overhead policies seamless simulator sizing skew what-if "
    "wordcount wordcount-functions"
)


def test_every_bench_is_in_the_catalog_and_its_functions_are_there():
    assert list(BENCHES) == BENCH_NAMES.split()
    for part in PARTS:
        assert callable(part.measure.resolve()) and callable(part.judge.resolve())
