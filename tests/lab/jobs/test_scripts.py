"""The scripts are those of users: they know nothing of Penstock, and take the arguments that jobs give."""

import ast
import importlib
import os
import runpy
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from pyspark import cloudpickle

from penstock.errors import BadInput
from penstock_lab.jobs import answers, tables
from penstock_lab.jobs.catalog import ITERATIONS, JOBS, MANY_ITERATIONS, SCRIPTS, find_job
from penstock_lab.jobs.costs import COSTS, Cost
from penstock_lab.jobs.loads import LOADS
from penstock_lab.jobs.places import RunPlace

FOREIGN = {"numpy", "pandas", "pyspark"}
SHARED = SCRIPTS / "streaming_app.py"
"""The sibling that the scripts import."""
PLACE = RunPlace(Path("run") / "first", "127.0.0.1:9092", "127.0.0.1:80")


def imported(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module.split(".")[0]


def test_every_job_has_a_script_and_every_script_a_job():
    assert {job.script for job in JOBS.values()} == set(SCRIPTS.glob("*.py")) - {SHARED}


def test_scripts_are_installed():
    room = SCRIPTS.parent
    settings = tomllib.loads((room.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    assert "penstock_lab.jobs" in settings["packages"]
    shipped = {path for glob in settings["package-data"]["penstock_lab.jobs"] for path in room.glob(glob)}
    assert shipped == set(SCRIPTS.glob("*.py"))


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_imports_nothing_of_ours(script):
    modules = set(imported(script))
    assert {"pyspark", SHARED.stem} & modules
    assert modules - set(sys.stdlib_module_names) - {SHARED.stem} <= FOREIGN
    assert "penstock" not in script.read_text(encoding="utf-8").lower()


@pytest.fixture
def shared(monkeypatch):
    """Import what the scripts share, from where Python finds it when it runs one of them."""
    monkeypatch.syspath_prepend(SCRIPTS)
    yield importlib.import_module(SHARED.stem)
    del sys.modules[SHARED.stem]


@pytest.fixture
def values_of(shared):
    """Return a reader of the names and the default arguments of a job's script."""
    arguments_of_tests = sys.argv

    def read(name):
        sys.argv = find_job(name).command(PLACE)
        names = runpy.run_path(sys.argv[0], run_name="read only")
        return names, names["parse_arguments"]()

    yield read
    sys.argv = arguments_of_tests


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_script_takes_the_arguments_of_its_job(job, values_of):
    script, *arguments = job.command(PLACE)
    assert script == str(job.script)
    found = vars(values_of(job.name)[1])
    assert str(found["checkpoint"]) == str(PLACE.checkpoint)
    assert job.ends_by_itself == ("stop_file" not in found)
    assert not job.ends_by_itself or "availableNow" in Path(script).read_text(encoding="utf-8")
    assert found.get("brokers", PLACE.brokers) == PLACE.brokers
    assert ("brokers" in found) == job.uses_kafka
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert {f"--{name.replace('_', '-')}" for name in found} >= given.keys()


@pytest.mark.parametrize("name", JOBS)
def test_answers_are_for_what_the_scripts_do_by_default(name, values_of):
    names, arguments = values_of(name)
    iterations = MANY_ITERATIONS if name == "four-partitions" else ITERATIONS
    assert getattr(arguments, "iterations", iterations) == iterations
    assert getattr(arguments, "distance", answers.DISTANCE) == answers.DISTANCE
    assert names.get("REGIONS", answers.REGIONS) == answers.REGIONS
    assert names.get("GAP_MS", answers.GAP_MS) == answers.GAP_MS


def test_lookups_wait_as_long_as_their_costs_say(values_of):
    _, lookup = values_of("small-files-lookup")
    _, call = values_of("no-trigger")
    assert lookup.lookup_ms / 1000 == find_job("small-files-lookup").cost.waiting_seconds
    # a fifth of the orders are repeated, and not called for
    assert 0.8 * call.call_ms / 1000 == pytest.approx(find_job("no-trigger").cost.waiting_seconds)


def test_scoring_is_the_same_in_script_and_answer(values_of, tmp_path):
    names, _ = values_of("numpy-scoring")
    tables.write_model(tmp_path)
    score = names["make_scoring"](str(tmp_path / "model.npz"))
    orders = pd.DataFrame({"order_id": [1, 2], "customer": [3, 4], "product": [7, 49], "pieces": [1, 5]})
    (scored,) = score(iter([orders]))
    assert scored["score"].tolist() == [answers.score_order(7, 1), answers.score_order(49, 5)]


def test_names_are_hidden_with_the_salt_of_the_answers(shared):
    assert shared.SALT == answers.SALT


def test_executors_hide_names_without_the_files_of_the_driver(shared, tmp_path):
    hide = shared.make_hash(3)
    (tmp_path / "sent").write_bytes(cloudpickle.dumps(hide))
    executor = "import pickle; print(pickle.load(open('sent', 'rb'))('Ada'))"
    environment = {**os.environ, "PYTHONPATH": ""}
    said = subprocess.check_output([sys.executable, "-c", executor], cwd=tmp_path, env=environment, text=True)
    assert said.strip() == hide("Ada")


def test_reading_a_script_changes_no_signal(values_of):
    before = signal.getsignal(signal.SIGTERM)
    values_of("sessions")
    assert signal.getsignal(signal.SIGTERM) is before


def test_jobs_know_which_loads_fit():
    for job in JOBS.values():
        assert set(job.loads) <= set(LOADS) and job.loads
    assert all("nights" in JOBS[name].loads for name in ("small-files-lookup", "kafka-windows"))


def test_every_job_has_a_cost_and_every_cost_a_job():
    assert COSTS.keys() == JOBS.keys()


def test_a_cost_gives_the_rate_that_slots_can_take():
    cost = Cost(waiting_seconds=0.010, computing_seconds=0.002)
    assert cost.slot_seconds() == pytest.approx(0.012)
    assert cost.rate(slots=6) == pytest.approx(500)
    assert cost.rate(slots=6, core_share=0.2) == pytest.approx(300)


def test_a_job_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="did you mean 'hot-key'"):
        find_job("hot-keys")
