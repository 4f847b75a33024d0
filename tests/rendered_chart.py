"""What Helm itself makes of the chart passes the same checks: `make test-chart`, and not `make test`."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
import yaml

from tests.test_chart import CHART, CHECKS, GIVEN

HELM = os.environ.get("HELM", "helm")
# Helm built from source does not know the version of a cluster
OPTIONS = ("--kube-version", "1.34.0")


def helm(*words: str) -> str:
    done = subprocess.run([HELM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values(**given: str) -> list[str]:
    return [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


def render(**given: str) -> list[dict[str, Any]]:
    text = helm("template", "fleet", str(CHART), *OPTIONS, *values(**given))
    return [one for one in yaml.safe_load_all(text) if one]


def test_lint_finds_nothing() -> None:
    helm("lint", "--strict", str(CHART), *OPTIONS, *values(**GIVEN))


def test_with_everything_switched_on_it_passes_the_checks() -> None:
    found = render(**GIVEN, **{"podMonitor.enabled": "true"})
    for check in CHECKS:
        check(found)


def test_by_itself_it_makes_a_controller_and_no_rights() -> None:
    kinds = [one["kind"] for one in render(image="penstock:1")]
    assert sorted(kinds) == ["Deployment", "PersistentVolumeClaim", "ServiceAccount"]
    kinds = [one["kind"] for one in render(image="penstock:1", **{"storage.claim": "shared"})]
    assert sorted(kinds) == ["Deployment", "ServiceAccount"]


@pytest.mark.parametrize(
    "given", [{}, {"image": "penstock:1", "replica": "3"}, {"image": "x", "interval": "soon"}]
)
def test_values_that_cannot_be_meant_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="schema"):
        render(**given)
