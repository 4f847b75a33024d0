"""The page on workloads lists the jobs as they are, and its examples run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_lab.jobs.catalog import JOBS
from penstock_lab.jobs.loads import LOADS

PAGE = Path(__file__).parents[3] / "docs" / "workloads.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## Ordinary jobs\n")[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_page_lists_every_job_with_its_summary():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", SECTION, flags=re.MULTILINE))
    listed = {name: text.replace("`", "") for name, text in rows.items() if name not in LOADS}
    assert listed == {name: job.summary for name, job in JOBS.items()}


def test_the_page_lists_every_load():
    assert set(LOADS) <= set(re.findall(r"`([a-z-]+)`", SECTION))


@pytest.fixture
def in_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))


def test_the_examples_run(in_a_directory):
    blocks = dict(BLOCK.findall(SECTION))
    command = shlex.split(blocks["console"].removeprefix("$ "))
    assert command[0] == "python"
    subprocess.run([sys.executable, *command[1:], "--at-once"], check=True)
    names: dict = {}
    exec(blocks["python"], names)
    assert names["words"][2] == str(JOBS["small-files-lookup"].script)
    assert len(list(names["place"].input("orders").iterdir())) == 4 * 120
    assert names["found"].missing > 0, "the job has not run"
    assert names["night_and_day"].startswith("bursts:base=0,peak=")
