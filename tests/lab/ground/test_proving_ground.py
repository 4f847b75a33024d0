"""A real cluster of hosts with limits; the examples of docs/proving-ground.md run on it.

Where the machine makes no control groups, each test asserts the refusal instead.
"""

import re
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.act.spark_executors import SparkExecutors
from penstock.observe.executors.losses import Losses
from penstock.observe.spark_status import SparkStatus
from penstock_lab.ground.control_groups import GroupsUnavailable, explain_refusal, find_hierarchy
from penstock_lab.ground.leftovers import PREFIX, Owner, find_start
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.ground.spark_cluster import executor_ids, start_cluster, stop_cluster
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "proving-ground.md"
TRIAL, OUTSIDE, TROUBLE = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
TASKS = 12
WORK = 1_500_000
JOB = """
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("ordinary job").config("spark.cores.max", "2").getOrCreate()
tasks = spark.sparkContext.parallelize(range(4), 4)
groups = tasks.map(lambda _: Path("/proc/self/cgroup").read_text()).collect()
Path("seen").write_text(spark.sparkContext.master + "\\n" + "".join(groups))
spark.stop()
"""


@dataclass
class Trial:
    """The ground, and a session on it."""

    ground: ProvingGround
    spark: SparkSession

    def run(self, function, tasks=TASKS):
        """Run a function once in each of so many tasks."""
        return self.spark.sparkContext.parallelize(range(tasks), tasks).map(function).collect()

    def time_work(self):
        """Return the seconds that the tasks of real computing take, without gifts."""
        self.run(lambda _: compute(WORK // 50))
        self.ground.limit(at_once=True)
        start = time.monotonic()
        self.run(lambda _: compute(WORK))
        return time.monotonic() - start

    def worker(self, name):
        """Describe one worker."""
        return next(one for one in self.ground.describe()["workers"] if one["worker"] == name)


def compute(steps):
    total = 0
    for number in range(steps):
        total += number * number
    return total


def find_own_worker():
    """Return the worker in whose group a task runs, in all controllers."""
    (name,) = set(re.findall(r"worker-\d+", Path("/proc/self/cgroup").read_text()))
    return name


def make_trial() -> ProvingGround:
    names: dict[str, ProvingGround] = {}
    exec(TRIAL, names)
    return names["trial"]


@pytest.fixture(scope="module")
def trial():
    refusal = explain_refusal()
    if refusal is not None:
        with pytest.raises(GroupsUnavailable), make_trial():
            raise AssertionError(f"it started, though {refusal}")
        yield None
        return
    with make_trial() as ground:
        # workers inherit nothing of this process, and the functions of this file are imported there
        conf = {"spark.python.daemon.module": "pyspark.daemon", "spark.executorEnv.PYTHONPATH": str(ROOT)}
        try:
            yield Trial(ground, start_cluster(ground.shape("proving ground", conf=conf)))
        finally:
            stop_cluster()


def test_every_worker_is_a_host_with_an_executor_in_its_group(trial):
    if trial is None:
        return
    ground, workers = trial.ground, trial.ground.workers
    assert len(workers) == 6
    assert [one["executors"] for one in ground.describe()["workers"]] == [1] * 6
    hosts = [one.host for one in SparkExecutors(trial.spark).executors({})]
    assert sorted(ground.find_worker(host) for host in hosts) == sorted(workers)
    assert set(trial.run(lambda _: find_own_worker())) <= set(workers)


def test_six_hosts_compute_faster_than_three(trial):
    if trial is None:
        return
    six = trial.time_work()
    for worker in trial.ground.workers[3:]:
        trial.ground.kill(worker)
    wait_for("the loss of three executors", lambda: len(executor_ids(trial.spark)) == 3)
    three = trial.time_work()
    assert three / six > 1.2, f"{three:.2f} s on three, {six:.2f} s on six"
    assert [one["state"] for one in trial.ground.describe()["workers"]] == ["running"] * 3 + ["dead"] * 3


def test_a_paused_host_stands_still_and_goes_on(trial, tmp_path):
    if trial is None:
        return
    directory = str(tmp_path)
    running = trial.ground.workers
    job = threading.Thread(target=lambda: trial.run(lambda _: count_until_enough(directory), len(running)))
    job.start()
    try:
        wait_for("progress everywhere", lambda: all(read_count(tmp_path / name) for name in running))
        paused, other = running[0], running[1]
        trial.ground.pause(paused)
        frozen, went_on = read_count(tmp_path / paused), read_count(tmp_path / other)
        wait_for("progress elsewhere", lambda: read_count(tmp_path / other) > went_on + 3)
        assert read_count(tmp_path / paused) == frozen
        assert trial.worker(paused)["state"] == "paused"
        trial.ground.resume(paused)
        wait_for("progress where it stood still", lambda: read_count(tmp_path / paused) > frozen)
    finally:
        (tmp_path / "enough").touch()
        job.join()


def count_until_enough(directory):
    """Count work done in a file named after the worker, until the file `enough` is there."""
    file, done = Path(directory) / find_own_worker(), 0
    while not (Path(directory) / "enough").exists():
        compute(20_000)
        done += 1
        file.with_suffix(".new").write_text(str(done))
        file.with_suffix(".new").rename(file)


def read_count(file):
    return int(file.read_text()) if file.exists() else 0


def test_a_memory_limit_kills_the_executor_and_the_application_lives_on(trial):
    if trial is None:
        return
    before = set(executor_ids(trial.spark))
    since = time.time()

    def eat_at_first(_):
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            return len(b"x" * (2 << 30))
        return "not hungry"

    assert trial.run(eat_at_first, tasks=1) == ["not hungry"]
    assert sum(one["memory_kills"] for one in trial.ground.describe()["workers"]) >= 1
    wait_for("another executor", lambda: len(set(executor_ids(trial.spark)) - before) == 1)
    assert len(executor_ids(trial.spark)) == len(before)
    lost = SparkStatus(trial.spark).lost_executors()
    assert Losses().counts(lost, since, time.time() + 1) == (0, 1), lost


def test_trouble_on_request(trial):
    if trial is None:
        return
    names = {"ground": trial.ground}
    exec(TROUBLE, names)
    new = names["new"]
    described = {one["worker"]: one for one in names["state"]["workers"]}
    assert (described["worker-1"]["state"], described["worker-2"]["slowed"]) == ("dead", 10)
    assert described[new]["state"] == described["worker-3"]["state"] == "running"
    wait_for("full speed for the start of an executor", lambda: trial.worker(new)["full_speed"])
    wait_for("the new executor", lambda: new in {trial.ground.find_worker(host) for host in hosts_of(trial)})
    trial.ground.limit(at_once=True)
    assert not trial.worker(new)["full_speed"]


def hosts_of(trial):
    return [one.host for one in SparkExecutors(trial.spark).executors({})]


def test_an_unchanged_script_runs_on_it(trial, tmp_path, monkeypatch):
    if trial is None:
        return
    stop_cluster()  # its executors hold all slots
    (tmp_path / "job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_JOURNAL", str(tmp_path / "journal.db"))
    exec(OUTSIDE, {"ground": trial.ground})
    master, *groups = (tmp_path / "seen").read_text().splitlines()
    assert master == trial.ground.url
    assert {name for line in groups for name in re.findall(r"worker-\d+", line)} <= set(trial.ground.workers)
    assert any("worker-" in line for line in groups)


def test_nothing_is_left_at_the_end(trial):
    if trial is None:
        return
    groups = find_own_groups()
    processes = set().union(*(group.processes() for group in groups))
    assert len(groups) == 1 + len(trial.ground.describe()["workers"]) and processes
    trial.ground.close()
    assert not find_own_groups()
    assert not [pid for pid in processes if find_start(pid) is not None]
    assert not list(Path(tempfile.gettempdir()).glob(f"{groups[0].name.removesuffix('-master')}*"))
    assert {one["state"] for one in trial.ground.describe()["workers"]} == {"dead"}


def find_own_groups():
    """Return the groups of grounds of this process, the master's first."""
    owner = Owner.this_process()
    return [group for group in find_hierarchy().find(PREFIX) if Owner.named_in(group.name) == owner]
