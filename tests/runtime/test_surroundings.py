"""What a policy that sizes memory is told by the journal: operators' words, and the sizes of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SizingFacts
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.policy import Proposal, Resize
from penstock.decide.registry import make_policy
from penstock.decide.sage.metrics import Parameter, Rule
from penstock.journal.overrides import add_override
from penstock.journal.store import Journal, open_journal
from penstock.runtime.surroundings import look_around
from penstock.settings.model import Settings
from tests.fakes import a_query, a_window

SIZE = {"operators": ["read"], "offered_per_executor": 1.0, "heap_bytes": 1e9}
CONF = {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "1g"}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


def propose(journal: Journal, settings: Settings, lost: int = 0) -> Proposal | NotReady:
    """Return the last of nine answers, with executors that were lost for want of heap in each window."""
    policy = make_policy(settings.run.policy, settings, look_around(journal, "words", RecommendOnly()))
    for end in range(10, 100, 10):
        window = a_window(end, 2, queries=(a_query(end - 10.0, end, backlog=10.0),))
        answer = policy.propose(replace(window, sizing=SizingFacts(CONF, out_of_memory_count=lost)))
    return answer


@pytest.mark.parametrize("policy", ["sage", "forecast:sage"])
def test_sage_heeds_operators_and_settings_also_behind_a_forecast(policy: str, journal: Journal):
    assert isinstance(propose(journal, Settings(policy=policy), lost=1), Resize)
    vetoed = Settings(policy=policy, sage_veto=("P1",))
    assert not isinstance(propose(journal, vetoed, lost=1), Resize)
    add_override(journal, 1.0, "words", "ops", pin=["heap=2g"])
    answer = propose(journal, Settings(policy=policy))
    assert isinstance(answer, Resize) and answer.reason.startswith("set by ops")
    assert answer.settings == {"spark.executor.memory": "2048m"}


@pytest.mark.parametrize("policy", ["sage", "forecast:sage"])
def test_the_journal_tells_of_operators_and_of_others(policy: str, journal: Journal):
    around = look_around(journal, "words", RecommendOnly())
    add_override(journal, 1.0, "words", "ops", pin=["heap"], veto=["P3"], force="P6")
    said = around.said().overrides
    assert (said.pinned, said.vetoed, said.forced) == ({Parameter.HEAP}, {Rule.CPU_UP}, Rule.HEAP_DOWN)
    journal.remember(1.0, "clicks", policy, "size", SIZE)
    journal.remember(1.0, "words", policy, "size", SIZE)
    assert around.others() == {"clicks": SIZE}, "what it found itself is not of another"
