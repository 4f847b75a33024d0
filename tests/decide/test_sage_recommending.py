"""Sage where new settings are only recommended, or refused: growth does not wait for them."""

from __future__ import annotations

import pytest

from penstock.decide.policy import Resize, Scale
from penstock.decide.resizer import Limits
from penstock.decide.restarts import RecommendOnly, RestartHistory, RestartJudge, RestartRules, judged
from penstock.decide.sage_overrides import said_of
from penstock.decide.verdict import Accepted, Rejected
from tests.decide.sized_application import GIB, Application


class Restarting:
    """Allows what the rules on restarts allow."""

    def judge(self, now: float, resize: Resize) -> Accepted | Rejected:
        return judged(now, resize, RestartRules(), RestartHistory())


@pytest.mark.parametrize(
    ("restarts", "waits"),
    [(RecommendOnly(), False), (Restarting(), True), (None, True)],
    ids=["recommended", "allowed", "unknown"],
)
def test_growth_waits_for_new_settings_only_where_they_will_come(restarts: RestartJudge | None, waits: bool):
    application = Application(needed=9)
    application.policy.restarts = restarts
    application.backlog_growth = 1000.0
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize if waits else Scale)
    assert "P1 (heap scale-up)" in answer.reason, "what is recommended is said in any case"
    assert waits or answer.reason.startswith("P4 (parallelism scale-up)")


def test_what_is_recommended_is_proposed_where_nothing_has_to_grow():
    application = Application(needed=9)
    application.policy.restarts = RecommendOnly()
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "6144m"}


def test_growth_does_not_wait_for_a_value_that_an_operator_set_and_nobody_may_restart_for():
    application = Application(needed=9)
    application.policy.restarts = RecommendOnly()
    application.said = said_of({"pin": ["heap=8g"], "by": "ops"}, "a test")
    assert isinstance(application.run(), Resize)
    application.backlog_growth = 1000.0
    answer = application.run()
    assert isinstance(answer, Scale) and "set by ops" in answer.reason


def test_growth_that_cannot_be_met_hides_no_recommendation():
    application = Application(limits=Limits(16, 64 * GIB, 1000, 1000 * GIB, most_executors=2), needed=9)
    application.policy.restarts = RecommendOnly()
    application.backlog_growth = 1000.0
    assert isinstance(application.run(heap_used_bytes=3.9 * GIB), Resize)


def test_a_rule_that_is_forced_is_proposed_though_more_is_needed():
    application = Application(needed=9)
    application.policy.restarts = RecommendOnly()
    application.backlog_growth = 1000.0
    application.run(3)
    application.said = said_of({"force": {"rule": "P1", "id": "ticket"}, "by": "ops"}, "a test")
    assert isinstance(application.run(1), Resize) and isinstance(application.run(4), Scale)
