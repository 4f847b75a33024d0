from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta, timezone

from penstock.dataflow.summary import QuerySummary
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect
from penstock.journal.explain import explain
from penstock.journal.records import ActionRecord
from penstock.view.figures import day_and_clock

INTENDED = ActionRecord(
    action_id=7,
    application="app-1",
    decision_id=3,
    policy="ds2",
    intended_at=1_700_000_000.0,
    seen=(QuerySummary("words", 1200.0, 900.0, 30000.0, batch_seconds=12.13, period_seconds=10.0),),
    before={EXECUTORS: 2},
    proposed={EXECUTORS: 5},
    planned={EXECUTORS: 4},
    exact={EXECUTORS: 4.4},
    reason="1,200 records/s need 8.8 slots at 80 % utilisation",
    notes=("at most 4 executors",),
    expected=ExpectedEffect("batches fit their period", {"batch_seconds": 7.6}),
)
ENDED = replace(
    INTENDED,
    status=Status.PARTIAL,
    ended_at=1_700_000_060.0,
    requested={EXECUTORS: 4},
    observed={EXECUTORS: 3},
    seconds=60.0,
    detail="asked for 4, 3 registered within 60 s: the cluster has no room for more",
)
MEASURED = replace(
    ENDED, effect_at=1_700_000_090.0, measured={"batch_seconds": 8.36, "backlog_records": 12000.0}
)


def test_the_whole_story_of_an_action():
    assert explain(MEASURED, UTC).splitlines() == [
        "Action 7 on app-1 by policy ds2, 2023-11-14 22:13:20 UTC",
        "  Seen       query words: 1,200 records/s offered, 900 records/s read, backlog of 30,000 records, "
        "batches of 12.1 s every 10 s",
        "  Held       2 executors",
        "  Proposed   5 executors (exact need 4.4 executors): "
        "1,200 records/s need 8.8 slots at 80 % utilisation",
        "  Guardrails at most 4 executors",
        "  Expected   batches fit their period: batch seconds 7.6",
        "  Planned    4 executors",
        "  Requested  4 executors",
        "  Observed   3 executors",
        "  Ended      partial after 60 s: asked for 4, 3 registered within 60 s: "
        "the cluster has no room for more",
        "  Effect     batch seconds 8.36 against 7.6 expected (+10%); backlog records 12,000",
    ]


def test_times_are_local_as_in_the_list_of_actions_and_name_their_zone():
    summer = timezone(timedelta(hours=2), "CEST")
    assert explain(INTENDED, summer).splitlines()[0].endswith("2023-11-15 00:13:20 CEST")
    local = day_and_clock(INTENDED.intended_at)
    assert local in explain(INTENDED).splitlines()[0]


def test_an_action_under_way_claims_nothing_that_has_not_happened():
    text = explain(INTENDED)
    assert "Ended      not yet" in text and "Effect     not measured yet" in text
    assert "Requested" not in text and "Observed" not in text


def test_guardrails_that_changed_nothing_or_left_no_note():
    assert "let it pass unchanged" in explain(replace(INTENDED, notes=(), proposed={EXECUTORS: 4}))
    assert "changed 5 executors to 4 executors" in explain(replace(INTENDED, notes=()))


def test_little_is_known():
    bare = replace(INTENDED, seen=(), policy="", proposed={}, exact={}, notes=(), expected=ExpectedEffect(""))
    text = explain(replace(bare, status=Status.UNKNOWN, observed={}, measured={}))
    assert "no observation was recorded" in text
    assert "Expected   nothing was stated" in text
    assert "Observed   nothing known" in text
    assert "Effect     nothing was measured" in text


def test_an_expected_zero_is_compared_without_a_percentage():
    record = replace(MEASURED, expected=ExpectedEffect("", {"backlog_records": 0.0}))
    assert "backlog records 12,000 against 0 expected;" in explain(record) + ";"


def test_a_query_without_batches_or_period():
    idle = QuerySummary("idle", 0.0, 0.0, 0.0)
    quick = QuerySummary("quick", 5.0, 5.0, 0.0, batch_seconds=0.51)
    text = explain(replace(INTENDED, seen=(idle, quick)))
    assert "query idle: 0 records/s offered" in text and "no batch finished" in text
    assert "batches of 0.51 s\n" in text
