"""AuTraScale from rate to rate: what was learned at one serves another, and is kept in a library."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from penstock.decide.autrascale_library import ModelLibrary
from penstock.decide.policy import Scale
from penstock.errors import BadInput
from tests.decide.autrascale_tuners import BASE, TARGET, models, policy
from tests.decide.latency_surface import three_operators


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
        return tuple(
            [sample["latency_seconds"] for sample in models(learner)[-1]["samples"]]
            for learner in (tuner, beginner)
        )

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
        kept = json.loads(json.dumps(tuner.dump()))
        successor = policy()
        successor.load(kept)
        assert successor.dump() == tuner.dump()
        again = three_operators(held=dict(BASE))
        again.run(successor, 10)
        assert again.held == app.held
        assert len(again.changes) == 1

    def test_other_operators_and_other_applications_learn_nothing_from_it(self):
        app, tuner = three_operators(), policy()
        app.run(tuner, 150)
        answer = tuner.propose(dataclasses.replace(app.window(), application="another"))
        assert isinstance(answer, Scale)
        assert "throughput phase" in answer.reason
        assert [model["application"] for model in models(tuner)] == ["app", "another"]

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"version": 2, "models": []},
            {"version": 1},
            {"version": 1, "models": [{}]},
            {"version": 1, "models": 3},
        ],
    )
    def test_anything_else_is_refused_and_changes_nothing(self, data):
        app, tuner = three_operators(), policy()
        app.run(tuner, 30)
        before = tuner.dump()
        with pytest.raises(BadInput, match="model library"):
            tuner.load(data)
        assert tuner.dump() == before

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
        data = tuner.dump()
        data["models"][0][key] = value
        with pytest.raises(BadInput):
            policy().load(data)

    def test_one_window_does_not_make_another_rate(self):
        app, tuner = three_operators(), policy(latency_target_seconds=None)
        app.run(tuner, 8)
        for stray in (800.0, 1_000.0, 1_150.0, 800.0, 1_000.0):
            app.rate = stray
            app.run(tuner, 1)
        assert len(models(tuner)) == 1
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
        assert len(models(tuner)) == 64
        assert models(tuner)[-1]["rate"] == pytest.approx(100.0 * 1.2**79)
