"""AuTraScale from rate to rate: what was learned at one serves another, and is kept in a library."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from penstock.decide.autrascale.search import ModelLibrary
from penstock.decide.policy import Scale
from penstock.journal.notebook import add_memory
from tests.decide.latency_surface import BASE, TARGET, policy, three_operators


class TestTransfer:
    def samples(self, learned, new):
        """Latencies sampled at the new rate, with what another rate taught and from nothing."""
        app, tuner = three_operators(rate=float(learned)), policy()
        app.run(tuner, 200)
        app.rate = float(new)
        app.run(tuner, 200)
        scratch, beginner = three_operators(rate=float(new)), policy()
        scratch.run(beginner, 200)
        assert app.latency() <= TARGET
        assert scratch.latency() <= TARGET
        return tuple(list(learner.models[-1].latencies.values()) for learner in (tuner, beginner))

    @pytest.mark.parametrize(
        ("learned", "new"),
        [(1_000, 1_150), (1_000, 1_250), (1_000, 800), (700, 900), (900, 700), (1_300, 1_100)],
    )
    def test_the_target_is_met_after_fewer_samples_than_from_nothing(self, learned, new):
        until_met = [
            next(number for number, seconds in enumerate(latencies) if seconds <= TARGET)
            for latencies in self.samples(learned, new)
        ]
        assert until_met[0] < until_met[1]

    @pytest.mark.parametrize(("learned", "new"), [(1_000, 1_250), (700, 900), (900, 700)])
    def test_a_search_that_ends_by_its_score_takes_fewer_samples_in_all(self, learned, new):
        transferred, scratch = self.samples(learned, new)
        assert len(transferred) < len(scratch)

    def test_the_reason_names_the_rate_that_was_learned_from(self):
        app, tuner = three_operators(), policy()
        app.run(tuner, 150)
        app.rate = 1_250.0
        app.run(tuner, 30)
        assert any("learned from 1,000 records/s" in answer.reason for answer in app.answers)

    def test_a_rate_that_is_known_needs_no_sample_at_all(self):
        app, tuner = three_operators(), policy()
        app.run(tuner, 150)
        settled = dict(app.held)
        app.rate = 1_250.0
        app.run(tuner, 150)
        app.rate = 990.0
        before = len(app.changes)
        app.run(tuner, 20)
        assert app.held == settled
        assert len(app.changes) == before + 1

    def test_after_num_real_samples_it_learns_from_its_own(self):
        # the cheaper model of another rate would send both the same way; its own samples do not
        sizes = {}
        for enough in (1, 50):
            app, tuner = three_operators(), policy(switch_after=enough)
            app.run(tuner, 150)
            app.rate = 1_150.0
            before = len(app.changes)
            app.run(tuner, 40)
            sizes[enough] = [size for _, size in app.changes[before:]]
        assert sizes[1] != sizes[50]


class TestLibrary:
    def test_it_survives_a_restart_as_json(self):
        app, tuner = three_operators(), policy()
        app.run(tuner, 150)
        successor = policy()
        assert successor.recall(json.loads(json.dumps(tuner.learned()))) == ()
        assert successor.learned() == tuner.learned()
        again = three_operators(held=dict(BASE))
        again.run(successor, 10)
        assert again.held == app.held
        assert len(again.changes) == 1

    def test_other_operators_and_other_applications_learn_nothing_from_it(self):
        app, tuner = three_operators(), policy()
        app.run(tuner, 150)
        answer = tuner.propose(dataclasses.replace(app.window(), application="another"))
        assert isinstance(answer, Scale) and "throughput phase" in answer.reason
        assert [model.application for model in tuner.models] == ["app", "another"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("rate", -1.0),
            ("rate", math.nan),
            ("base", [1]),
            ("base", [0, 1, 1]),
            ("samples", [{}]),
            ("best", 3),
        ],
    )
    def test_a_spoilt_model_is_refused(self, key, value):
        app, tuner = three_operators(), policy()
        app.run(tuner, 30)
        ((name, body),) = tuner.learned().items()
        successor = policy()
        assert "the model cannot be read" in successor.recall({name: {**body, key: value}})[0]
        assert successor.models == ()

    def test_one_window_does_not_make_another_rate(self):
        app, tuner = three_operators(), policy(latency_target=None)
        app.run(tuner, 8)
        for stray in (800.0, 1_000.0, 1_150.0, 800.0, 1_000.0):
            app.rate = stray
            app.run(tuner, 1)
        assert len(tuner.models) == 1
        assert len(app.changes) == 2
        # the one growth, for the window that needed it, and nothing given back for those that did not
        assert app.changes[1][1] == {"parse": 5, "enrich": 6, "store": 2}

    def test_a_rate_between_two_models_stays_with_the_one_in_use(self):
        library = ModelLibrary(0.1)
        lower, upper = (library.at("app", ("count",), rate) for rate in (100.0, 115.0))
        assert library.at("app", ("count",), 106.0) is lower
        assert library.at("app", ("count",), 106.0, upper) is upper
        assert library.at("app", ("count",), 100.0, upper) is lower

    def test_it_forgets_the_rates_used_longest_ago(self):
        app, tuner = three_operators(), policy()
        for step in range(80):
            app.rate = 100.0 * 1.2**step
            app.run(tuner, 2)
        assert len(tuner.models) == 64
        assert tuner.models[-1].rate == pytest.approx(100.0 * 1.2**79)


class RenamedApplication:
    """The same application under the id of another run."""

    def __init__(self, tuner, name):
        self.tuner, self.name = tuner, name

    def propose(self, window):
        return self.tuner.propose(dataclasses.replace(window, application=self.name))


def test_the_next_run_takes_up_what_the_last_one_learned(journal):
    app = three_operators()
    first = policy()
    app.run(RenamedApplication(add_memory(first, journal, "orders"), "app-1"), 150)
    kept = journal.recall("orders", "autrascale")
    assert kept and all("@" in key for key in kept)
    again, second = three_operators(held=dict(BASE), now=app.now), policy()
    again.run(RenamedApplication(add_memory(second, journal, "orders"), "app-2"), 10)
    assert again.held == app.held and len(again.changes) == 1
    assert {model.application for model in second.models} == {"app-2"}


def test_another_application_does_not_get_it(journal):
    three_operators().run(add_memory(policy(), journal, "orders"), 60)
    stranger = policy()
    three_operators().run(add_memory(stranger, journal, "images"), 1)
    assert len(stranger.models) == 1


def test_a_model_of_a_near_rate_is_learned_from_after_a_restart(journal):
    app = three_operators()
    app.run(add_memory(policy(), journal, "orders"), 150)
    faster, tuner = three_operators(held=dict(BASE), now=app.now), policy()
    faster.rate = 1_300.0
    faster.run(add_memory(tuner, journal, "orders"), 40)
    assert any("learned from 1,000 records/s" in answer.reason for answer in faster.answers)


def test_spoilt_memories_are_told_and_the_others_used():
    app, tuner = three_operators(), policy()
    app.run(tuner, 150)
    known = {**tuner.learned(), "parse@9": {"units": ["parse"]}, "x": {}}
    successor = policy()
    notes = successor.recall(known)
    assert len(notes) == 2 and "parse@9: the model cannot be read" in notes[0]
    assert len(successor.models) == len(tuner.learned())


def test_rates_that_drift_share_keys():
    app, tuner = three_operators(), policy(latency_target=None)
    for step in range(60):
        app.rate = 1_000.0 * 1.05**step
        app.run(tuner, 6)
    assert len(tuner.learned()) <= len(tuner.models) <= 64
