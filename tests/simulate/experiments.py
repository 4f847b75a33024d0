"""Small scenarios for the tests of the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import parse

PLAIN: dict[str, Any] = {
    "duration": 600,
    "sources": {"events": {"rate": "constant:1000"}},
    "operators": {
        "parse": {"inputs": ["events"], "service_time": "1ms", "selectivity": 2, "queue": 500},
        "count": {"inputs": ["parse"], "service_time": "1ms", "queue": 500},
    },
    "settings": {
        "policy_interval": 10,
        "utilisation": 1.0,
        "utilisation_low": 0.99,
        "activation_intervals": 1,
    },
}


def written(changes: dict[str, Any]) -> str:
    """The plain scenario with some top-level keys replaced."""
    return str(yaml.safe_dump({**PLAIN, **changes}))


def an_experiment(path: Path = Path("scenario.yaml"), **changes: Any) -> Experiment:
    return parse(written(changes), path)


def with_operators(**operators: dict[str, Any]) -> Experiment:
    return an_experiment(operators=operators)
