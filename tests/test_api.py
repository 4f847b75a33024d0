"""The reference of the Python API is that of the code, and has every name that the packages offer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
import penstock.pipeline

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("api", ROOT / "scripts" / "api.py")
assert SPEC is not None and SPEC.loader is not None
api = importlib.util.module_from_spec(SPEC)
sys.modules["api"] = api
SPEC.loader.exec_module(api)
ENTRIES = [entry for section in api.SECTIONS for entry in section.entries]
SEPARATE = {"__version__"}


def test_the_page_is_that_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "api.py")],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "docs" / "api.md").read_text() == done.stdout, "run `python scripts/api.py > docs/api.md`"


def test_every_name_that_a_package_offers_is_on_it() -> None:
    told = {(entry.module, entry.name) for entry in ENTRIES}
    for package in (penstock, penstock.pipeline):
        assert {(package.__name__, name) for name in set(package.__all__) - SEPARATE} <= told


def test_calls_are_shown_as_they_are_typed() -> None:
    assert api.write_member(penstock.Autopilot, "scale").startswith("| `scale(executors, by='hand')` | Set")
    assert api.write_member(penstock.Autopilot, "running").startswith("| `running` | Whether")
    assert api.write_signature(penstock.pipeline.files, "files") == (
        "files(root: str, *, files_per_batch: int | None = None) -> Files"
    )


def test_what_has_no_docstring_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="no docstring"):
        api.read_doc(test_what_has_no_docstring_cannot_be_told)
