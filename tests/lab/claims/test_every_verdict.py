"""No claim passes whatever happens: every one in the catalog is fed an outcome in which it must fail."""

from __future__ import annotations

import pytest

from penstock_lab.claims.claim import Claim, Verdict, complete_claims
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.report.catalog import PARTS
from tests.lab.claims.made_outcomes import OUTCOMES

NAMES = [part.name for part in PARTS]


def judge(name: str, measured: Measurement) -> list[Claim]:
    (part,) = (part for part in PARTS if part.name == name)
    return list(part.judge(measured).claims)


def is_judged(claim: Claim) -> bool:
    return claim.counts or claim.verdict is Verdict.ILLUSTRATION


def test_every_part_has_an_outcome_that_succeeds_and_one_that_fails():
    assert sorted(OUTCOMES) == sorted(NAMES)
    assert all(made.bad for made in OUTCOMES.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_verdict_fails_on_the_opposite_outcome(name):
    made = OUTCOMES[name]
    claims = [claim for measured in (made.good, *made.bad) for claim in judge(name, measured)]
    judged = {claim.name for claim in claims if is_judged(claim)}
    assert judged == {claim.name for claim in claims if claim.failed}


@pytest.mark.parametrize("name", NAMES)
def test_every_verdict_can_succeed_too(name):
    claims = [claim for claim in judge(name, OUTCOMES[name].good) if is_judged(claim)]
    assert claims
    unsure = {claim.name: claim.verdict.value for claim in claims if claim.failed}
    unsure |= {one.name: one.verdict.value for one in claims if one.verdict is Verdict.NOT_COMPARABLE}
    assert unsure == {}


@pytest.mark.parametrize("name", NAMES)
def test_results_of_a_part_have_names_of_their_own(name):
    names = [(claim.name, claim.target) for claim in judge(name, OUTCOMES[name].good)]
    assert len(names) == len(set(names))


def test_a_case_that_failed_and_settings_of_the_run_are_told_with_every_claim():
    made = OUTCOMES["seamless"].good
    rows = [{**row, "settings": "mode=observe"} for row in made.rows]
    measured = Measurement(rows, failures=["restart could not be measured: lost"])
    (part,) = (part for part in PARTS if part.name == "seamless")
    claims = complete_claims(measured, part.judge(measured)).claims
    assert [claim.failed for claim in claims] == [False, True]
    told = "only shown with settings other than the defaults: mode=observe"
    assert {claim.conditions for claim in claims} == {told}
    assert "restart could not be measured" in claims[1].why
