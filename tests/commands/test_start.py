"""How a command starts: without the packages that only others need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.command_line import ROOT

ASK = """
import sys
from penstock.cli import perform
perform(sys.argv[2:])
heavy = set(sys.argv[1].split(","))
print("loaded", *sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""
HEAVY = {
    "scipy",
    "numba",
    "pandas",
    "pyarrow",
    "plotly",
    "pyspark",
    "py4j",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "jinja2",
    "prometheus_client",
}


@pytest.mark.parametrize(
    ("command", "needed"),
    [("--version", {"numpy"}), ("status", set()), ("policies", set())],
)
def test_a_command_that_shows_little_loads_no_heavy_package(command: str, needed: set[str], tmp_path: Path):
    """Each of them takes from a tenth of a second to one, which a person waits for at every command."""
    heavy = HEAVY | needed
    environment = {**os.environ, "PENSTOCK_RUNTIME_DIRECTORY": str(tmp_path)}
    asked = [sys.executable, "-c", ASK, ",".join(heavy), command]
    told = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "loaded"
