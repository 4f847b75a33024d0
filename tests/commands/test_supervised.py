"""`penstock run --allow-restart` around scripts without Spark: exit codes, output, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.commands.supervised import job_name
from penstock.journal.store import open_journal
from penstock.supervise.job_memory import JobMemory, recalled, remembered
from tests.commands.command_line import COMMAND, ROOT, Captured, complaint

SCRIPT = """
import os, sys
print("submitted", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
print("given", *sys.argv[1:])
sys.exit(5)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(SCRIPT)
    return path


def ran(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    places = {
        "PENSTOCK_JOURNAL": str(tmp_path / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(tmp_path / "run"),
    }
    return subprocess.run(
        [*COMMAND, "run", "--allow-restart", *words],
        env={**os.environ, **places},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_scripts_own_exit_code_and_arguments(script: Path, tmp_path: Path):
    done = ran(tmp_path, str(script), "--policy", "mine")
    assert done.returncode == 5, done.stderr
    assert "given --policy mine" in done.stdout
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        assert recalled(journal, job_name(script, ["--policy", "mine"])).driver["pid"] > 0


def test_with_json_the_last_line_is_the_result(script: Path, tmp_path: Path):
    done = ran(tmp_path, "--json", str(script))
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert (told["exit_code"], told["restarts"], told["applications"]) == (5, [], [])
    assert "given" in done.stderr


def test_it_begins_with_what_was_proven_unless_the_user_says_otherwise(script: Path, tmp_path: Path):
    proven = {"spark.executor.memory": "3g", "spark.executor.cores": "2"}
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        remembered(journal, 1.0, job_name(script, []), JobMemory(proven=proven))
    done = ran(tmp_path, "--conf", "spark.executor.cores=4", str(script))
    submitted = next(line for line in done.stdout.splitlines() if line.startswith("submitted"))
    assert "spark.executor.memory=3g" in submitted
    assert "spark.executor.cores=4" in submitted and "spark.executor.cores=2" not in submitted


def test_only_observing_and_restarting_contradict_each_other(
    capsys: Captured, script: Path, config: list[str]
):
    assert perform(["run", "--allow-restart", "--observe", *config, str(script)]) == 2
    assert "--allow-restart" in complaint(capsys)
