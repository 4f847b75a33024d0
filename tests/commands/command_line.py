"""What the tests of the commands share: where they run, and how their output is read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "penstock.cli"]
Captured = pytest.CaptureFixture[str]


def last_json(captured: Captured) -> Any:
    """The last line of standard output; nothing else there may be JSON."""
    *others, last = captured.readouterr().out.splitlines()
    assert not [line for line in others if line.startswith(("{", "["))]
    return json.loads(last)


def complaint(captured: Captured) -> str:
    """The one line on standard error."""
    said = captured.readouterr().err
    assert said.count("\n") == 1, said
    assert said.startswith("penstock: error: ")
    return said.removeprefix("penstock: error: ").strip()
