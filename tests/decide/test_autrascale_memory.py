"""What AuTraScale has learned outlives the driver: kept in the journal, found by operators and rate."""

import dataclasses

import pytest

from penstock.journal.store import open_journal
from penstock.remembering import remembering
from tests.decide.latency_surface import three_operators
from tests.decide.test_autrascale import BASE, policy


class RenamedApplication:
    """The same application under the id of another run."""

    def __init__(self, tuner, name):
        self.tuner, self.name = tuner, name

    def propose(self, window):
        return self.tuner.propose(dataclasses.replace(window, application=self.name))


@pytest.fixture
def journal(tmp_path):
    opened = open_journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def test_the_next_run_takes_up_what_the_last_one_learned(journal):
    app = three_operators()
    first = policy()
    app.run(RenamedApplication(remembering(first, journal, "orders"), "app-1"), 150)
    kept = journal.recall("orders", "autrascale")
    assert kept and all("@" in key for key in kept)
    again, second = three_operators(held=dict(BASE), now=app.now), policy()
    again.run(RenamedApplication(remembering(second, journal, "orders"), "app-2"), 10)
    assert again.held == app.held and len(again.changes) == 1
    assert {model["application"] for model in second.dump()["models"]} == {"app-2"}


def test_another_application_does_not_get_it(journal):
    three_operators().run(remembering(policy(), journal, "orders"), 60)
    stranger = policy()
    three_operators().run(remembering(stranger, journal, "images"), 1)
    assert len(stranger.dump()["models"]) == 1


def test_a_model_of_a_near_rate_is_learned_from_after_a_restart(journal):
    app = three_operators()
    app.run(remembering(policy(), journal, "orders"), 150)
    faster, tuner = three_operators(held=dict(BASE), now=app.now), policy()
    faster.rate = 1_300.0
    faster.run(remembering(tuner, journal, "orders"), 40)
    assert any("learned from 1,000 records/s" in answer.reason for answer in faster.answers)


def test_spoilt_memories_are_told_and_the_others_used():
    app, tuner = three_operators(), policy()
    app.run(tuner, 150)
    known = {**tuner.learned(), "parse@9": {"units": ["parse"]}, "x": {}}
    successor = policy()
    notes = successor.recall(known)
    assert len(notes) == 2 and "parse@9: the model cannot be read" in notes[0]
    assert len(successor.dump()["models"]) == len(tuner.learned())


def test_rates_that_drift_share_keys():
    app, tuner = three_operators(), policy(latency_target_seconds=None)
    for step in range(60):
        app.rate = 1_000.0 * 1.05**step
        app.run(tuner, 6)
    assert len(tuner.learned()) <= len(tuner.dump()["models"]) <= 64
