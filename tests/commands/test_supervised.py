"""`penstock run --allow-restart` around scripts without Spark: exit codes, output, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.act.restart.job_memory import JobMemory, recall_job, remember_job
from penstock.cli import perform
from penstock.commands.run import name_job
from penstock.journal.store import open_journal
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


def ran(
    tmp_path: Path, *words: str, options: tuple[str, ...] = ("--allow-restart",), cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    places = {
        "PENSTOCK_JOURNAL": str(tmp_path / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(tmp_path / "run"),
    }
    return subprocess.run(
        [sys.executable, "-P", *COMMAND[1:], "run", *options, *words],
        env={**os.environ, **places, "PYTHONPATH": str(ROOT)},
        cwd=cwd,
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
        assert recall_job(journal, name_job(script, ["--policy", "mine"])).driver["pid"] > 0


def test_with_json_the_last_line_is_the_result(script: Path, tmp_path: Path):
    done = ran(tmp_path, "--json", str(script))
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert (told["exit_code"], told["restarts"], told["applications"]) == (5, [], [])
    assert "given" in done.stderr


def test_it_begins_with_what_was_proven_unless_the_user_says_otherwise(script: Path, tmp_path: Path):
    proven = {"spark.executor.memory": "3g", "spark.executor.cores": "2"}
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        remember_job(journal, 1.0, name_job(script, []), JobMemory(proven=proven))
    done = ran(tmp_path, "--conf", "spark.executor.cores=4", str(script))
    submitted = next(line for line in done.stdout.splitlines() if line.startswith("submitted"))
    assert "spark.executor.memory=3g" in submitted
    assert "spark.executor.cores=4" in submitted and "spark.executor.cores=2" not in submitted


def test_what_the_journal_says_is_not_run_unless_it_is_a_size(script: Path, tmp_path: Path):
    proven = {"spark.executor.memory": "3g", "spark.driver.extraJavaOptions": "-javaagent:/tmp/theirs.jar"}
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        remember_job(journal, 1.0, name_job(script, []), JobMemory(proven=proven))
    done = ran(tmp_path, "--conf", "spark.executor.cores=4", str(script))
    submitted = next(line for line in done.stdout.splitlines() if line.startswith("submitted"))
    assert done.returncode == 5 and "spark.executor.cores=4" in submitted
    assert "javaagent" not in submitted and "3g" not in submitted
    (line,) = [line for line in done.stderr.splitlines() if "not used" in line]
    assert "spark.driver.extraJavaOptions" in line


@pytest.mark.parametrize("options", [(), ("--allow-restart",)])
def test_the_job_runs_without_its_journal(script: Path, tmp_path: Path, options: tuple[str, ...]):
    (tmp_path / "journal.db").mkdir()
    done = ran(tmp_path, str(script), options=options)
    assert done.returncode == 5, done.stderr
    assert "given" in done.stdout


@pytest.mark.parametrize("options", [(), ("--allow-restart",)])
def test_nothing_is_imported_from_the_current_directory_and_all_from_beside_the_script(
    tmp_path: Path, options: tuple[str, ...]
):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    (theirs / "penstock").mkdir(parents=True)
    ours.mkdir()
    for name in ("penstock/__init__.py", "penstock/cli.py", "json.py", "typer.py", "beside.py"):
        (theirs / name).write_text("print('theirs was imported', __file__, flush=True)")
    (ours / "beside.py").write_text("NAME = 'ours'")
    (ours / "job.py").write_text(
        "import sys, json, zipfile, beside; print('beside is', beside.NAME, sys.path[0])"
    )
    done = ran(tmp_path, str(ours / "job.py"), options=options, cwd=theirs)
    assert done.returncode == 0, done.stderr
    assert f"beside is ours {ours}" in done.stdout.splitlines()
    assert "theirs was imported" not in done.stdout + done.stderr


@pytest.mark.parametrize("safe", [(), ("-P",)])
def test_the_scripts_directory_takes_the_place_of_the_callers_alone(tmp_path: Path, safe: tuple[str, ...]):
    """Isolated, Python has put nothing first on its path, and what is first there must stay."""
    (tmp_path / "job.py").write_text("import sys; print(sys.path[0], sys.path.count(sys.argv[1]))")
    command = [
        sys.executable,
        *safe,
        "-m",
        "penstock.cli",
        "run",
        str(tmp_path / "job.py"),
        str(tmp_path / "first"),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'first'}:{ROOT}"}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == f"{tmp_path} 1\n", done.stderr


def test_only_observing_and_restarting_contradict_each_other(
    capsys: Captured, script: Path, config: list[str]
):
    assert perform(["run", "--allow-restart", "--observe", *config, str(script)]) == 2
    assert "--allow-restart" in complaint(capsys)


def test_a_jvm_that_spark_submit_has_started_is_told_nothing_more(
    capsys: Captured, script: Path, config: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert perform(["run", "--allow-restart", *config, str(script)]) == 2
    assert "leave out spark-submit" in complaint(capsys)
    assert perform(["run", "--conf", "spark.executor.cores=2", *config, str(script)]) == 2
    assert "give spark.executor.cores=2 to spark-submit" in complaint(capsys)
