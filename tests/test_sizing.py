"""What a policy that sizes memory is told by the journal: operators' words, and the sizes of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.decide.forecast import ForecastPolicy
from penstock.decide.registry import make_policy
from penstock.decide.restarts import RecommendOnly
from penstock.decide.sage_metrics import Parameter, Rule
from penstock.decide.sage_policy import SagePolicy
from penstock.journal.overrides import override
from penstock.journal.store import Journal, open_journal
from penstock.settings import Settings
from penstock.sizing import heeding

SIZE = {"operators": ["read"], "offered_per_executor": 1.0, "heap_bytes": 1e9}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


@pytest.mark.parametrize("policy", ["sage", "forecast:sage"])
def test_sage_minds_operators_and_others_also_behind_a_forecast(policy: str, journal: Journal):
    settings = Settings(policy=policy, sage_veto=("P3",))
    made = heeding(make_policy(settings), journal, "words", settings, RecommendOnly())
    sage = made.inner if isinstance(made, ForecastPolicy) else made
    assert isinstance(sage, SagePolicy)
    override(journal, 1.0, "words", "ops", pin=["heap"], force="P6")
    said = sage.said()
    assert (said.overrides.pinned, said.overrides.vetoed) == ({Parameter.HEAP}, {Rule.CPU_UP})
    assert said.overrides.forced is Rule.HEAP_DOWN
    journal.remember(1.0, "clicks", policy, "size", SIZE)
    journal.remember(1.0, "words", policy, "size", SIZE)
    assert sage.others() == {"clicks": SIZE}, "what it found itself is not of another"


def test_a_policy_that_sizes_no_memory_is_left_as_it_is(journal: Journal):
    made = make_policy(Settings(policy="ds2"))
    assert heeding(made, journal, "words", Settings(policy="ds2"), RecommendOnly()) is made
