"""Many seeds: the figures of each are those of a single run, and their spread is told."""

import json
import pickle

from penstock.cli import perform
from penstock.simulate.comparison import here, run_seeds
from penstock.simulate.loading import list_shipped, load
from penstock.simulate.measures import measure
from penstock.simulate.run import simulate
from tests.simulate.experiments import an_experiment

NOISY = {"noise": 0.2, "sources": {"events": {"rate": "sine:mean=3000,amplitude=2500,period=300"}}}


def test_each_seed_is_the_run_of_that_seed():
    experiment = an_experiment(**NOISY)
    found = run_seeds(experiment, ["ds2", "threshold"], [3, 4], here)
    for policy in ("ds2", "threshold"):
        for seed, figures in zip((3, 4), found.runs[policy], strict=True):
            expected = measure(simulate(experiment, policy, seed)).to_json()
            assert {**expected, "seed": seed, "errors": {}} == figures
    spread = found.spread("ds2")["steps"]
    assert spread["median"] <= spread["p95"] <= spread["largest"]
    assert "over_latency_target_seconds" not in found.spread("ds2")


def test_the_command_prints_the_spread(capsys):
    arguments = ["simulate", "image-pipeline", "--policy", "queueing", "--seeds", "3", "--seed", "5"]
    assert perform([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["seeds"] == {"first": 5, "count": 3}
    assert [run["seed"] for run in found["policies"][0]["runs"]] == [5, 6, 7]
    assert perform(arguments) == 0
    assert "3 seeds" in capsys.readouterr().out
    assert perform([*arguments, "--html", "x.html"]) == 2
    assert "--html: shows one seed" in capsys.readouterr().err


def test_every_experiment_can_be_sent_to_executors():
    for name in list_shipped():
        experiment = load(name)
        assert pickle.loads(pickle.dumps(experiment)).units == experiment.units
