"""The product without the laboratory: only the laboratory's commands are missing, and say how to get it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from penstock.commands.laboratory import COMMANDS
from tests.commands.command_line import ROOT


def folders_of(requirement: str) -> tuple[str, str]:
    """How the folders of a distribution begin: those of its code, and those of its metadata."""
    name = re.split(r"[^\w-]", requirement)[0].lower()
    return name.replace("-", "_"), name


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product and all that is installed, without the laboratory and what only it needs."""
    project = tomllib.loads((ROOT / "penstock_lab" / "pyproject.toml").read_text())["project"]
    lacking = tuple(
        beginning
        for requirement in ["penstock-lab", *project["dependencies"]]
        for beginning in folders_of(requirement)
    )
    path = tmp_path_factory.mktemp("product")
    (path / "penstock").symlink_to(ROOT / "penstock")
    for kind in ("purelib", "platlib"):
        for installed in Path(sysconfig.get_path(kind)).iterdir():
            name, linked = installed.name.lower(), path / installed.name
            if not name.startswith((*lacking, "__editable__")) and not linked.is_symlink():
                linked.symlink_to(installed)
    return path


def run(product: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S leaves the environment's own packages out, -P the current directory
    command = [sys.executable, "-S", "-P", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(product)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_its_commands_say_in_one_line_how_to_get_it(command: str, product: Path):
    done = run(product, "-m", "penstock.cli", command, "decision", "--quick", "--json")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith(f"penstock: error: {command}: this command needs the laboratory")
    assert "pip install ./penstock_lab" in line
    assert json.loads(done.stdout) == {"error": line.removeprefix("penstock: error: ")}


def test_the_product_needs_nothing_of_it(product: Path):
    every = (
        "import importlib, pkgutil, penstock\n"
        "for found in pkgutil.walk_packages(penstock.__path__, 'penstock.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
    )
    done = run(product, "-c", every)
    assert done.returncode == 0, done.stderr
    assert run(product, "-c", "import penstock_lab").returncode != 0
