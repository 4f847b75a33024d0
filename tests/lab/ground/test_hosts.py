"""When a host runs at full speed, on a stand-in tree of control groups, and what is refused."""

import os
import signal
import subprocess
from dataclasses import replace

import psutil
import pytest

from penstock.errors import ActionFailed, BadInput
from penstock_lab.ground.control_groups import find_hierarchy
from penstock_lab.ground.hosts import (
    EXECUTOR_GIFT,
    FIRST_TASK_SHARE,
    PYTHON_GIFT,
    GroundHost,
    HostProcess,
    HostShape,
    WarmUp,
    find_gifts,
    has_task_thread,
)
from tests.lab.ground.group_trees import add_process, make_version_1, read_settings, show_figures
from tests.waiting import wait_for

WORKER = HostProcess(10, 1, ("java", "org.apache.spark.deploy.worker.Worker", "--cores", "1"))
EXECUTOR = HostProcess(
    20, 10, ("java", "CoarseGrainedExecutorBackend", "--executor-id", "3", "--app-id", "a")
)
DAEMON = HostProcess(30, 20, ("python", "-m", "pyspark.daemon", "pyspark.worker"))
PYTHON_WORKER = HostProcess(31, 30, DAEMON.command)
CHMOD = HostProcess(40, 20, ("chmod", "0644", "file"))


def test_executors_and_their_python_get_gifts_and_nothing_else_does():
    assert find_gifts([WORKER]) == {}
    assert find_gifts([WORKER, EXECUTOR, CHMOD]) == {20: EXECUTOR_GIFT}
    everything = [PYTHON_WORKER, DAEMON, CHMOD, EXECUTOR, WORKER]
    assert find_gifts(everything) == {20: EXECUTOR_GIFT, 30: PYTHON_GIFT}


def test_a_fork_of_an_executor_is_no_executor_before_it_has_its_own_command():
    forked = replace(EXECUTOR, pid=25, parent=EXECUTOR.pid)
    assert find_gifts([WORKER, EXECUTOR, forked]) == {20: EXECUTOR_GIFT}


JAVA, PYTHON = {20: 6.0}, {30: 2.0}


class Warming:
    """The warm-up of a host, told of its CPU seconds while it computes on one core or rests."""

    def __init__(self):
        self.warm_up, self.now, self.used, self.has_had_task = WarmUp(), 100.0, 3.0, False

    def compute(self, seconds, gifts):
        """Return whether the host is warming up after so many seconds of computing."""
        return self._look(seconds, seconds, gifts)

    def rest(self, seconds, gifts, share=0.01):
        return self._look(seconds, share * seconds, gifts)

    def _look(self, seconds, used, gifts):
        self.now, self.used = self.now + seconds, self.used + used
        return self.warm_up.judge(gifts, self.used, self.now, self.has_had_task)


def test_a_host_warms_up_until_the_gift_of_cpu_seconds_is_used():
    host = Warming()
    assert not host.compute(0.0, {})
    assert host.compute(0.0, JAVA)
    assert host.compute(5.9, JAVA)
    assert not host.compute(0.1, JAVA)
    assert not host.compute(40.0, JAVA)


def test_what_is_left_of_a_gift_is_added_to_the_next_gift():
    host = Warming()
    host.compute(0.0, JAVA)
    assert host.compute(3.0, JAVA)
    assert host.compute(0.0, JAVA | PYTHON)
    assert host.compute(4.9, JAVA | PYTHON)
    assert not host.compute(0.1, JAVA | PYTHON)


@pytest.mark.parametrize("start", [2.0, 4.0])
def test_an_executor_that_rests_before_its_first_task_gets_more_the_more_its_start_took(start):
    host = Warming()
    host.compute(0.0, JAVA)
    assert host.compute(start, JAVA)
    assert host.rest(1.0, JAVA)
    assert host.compute(FIRST_TASK_SHARE * start - 0.1, JAVA), "the classes of the first task"
    assert not host.compute(0.2, JAVA)


def test_an_executor_that_had_its_first_task_before_it_rests_gets_nothing():
    host = Warming()
    host.compute(0.0, JAVA)
    host.has_had_task = True
    assert not host.compute(6.5, JAVA)
    assert not host.rest(2.0, JAVA)


def test_a_pause_in_mid_start_takes_nothing_back():
    """One host of six ran its first task under the quota because its executor had waited for its driver."""
    host = Warming()
    host.compute(0.0, JAVA)
    assert host.compute(1.0, JAVA)
    assert host.rest(1.5, JAVA)
    assert host.compute(1.6, JAVA)
    assert host.rest(1.5, JAVA), "it has not had a task yet"
    assert host.compute(FIRST_TASK_SHARE * 2.5, JAVA), "the whole start counts"


def test_moments_of_work_between_rests_are_no_part_of_the_start():
    host = Warming()
    host.compute(0.0, JAVA)
    host.compute(2.0, JAVA)
    host.rest(1.0, JAVA, share=0.0)
    for _ in range(30):
        assert host.rest(20.0, JAVA)
        assert host.rest(1.0, JAVA, share=0.1), "heartbeats, a collection"
    assert host.compute(FIRST_TASK_SHARE * 2.0 - 0.2, JAVA)
    assert not host.compute(0.3, JAVA)


def test_an_executor_that_rests_after_its_first_task_keeps_nothing():
    host = Warming()
    host.compute(0.0, JAVA)
    host.compute(2.0, JAVA)
    host.rest(2.0, JAVA)
    host.has_had_task = True
    assert host.compute(1.0, JAVA)
    assert not host.rest(2.0, JAVA)
    assert host.compute(0.0, JAVA | PYTHON), "a Python that starts later has its own"
    assert host.compute(1.5, JAVA | PYTHON)
    assert not host.rest(1.0, JAVA | PYTHON)


def test_an_executor_that_comes_later_gets_a_whole_gift():
    host = Warming()
    host.compute(0.0, JAVA)
    assert not host.compute(100.0, JAVA)
    assert not host.compute(1.0, {})
    later = {21: JAVA[20]}
    assert host.compute(0.0, later)
    assert host.compute(5.9, later)
    assert not host.compute(0.1, later)


def test_gifts_can_be_taken_back():
    host = Warming()
    assert host.compute(0.0, JAVA)
    host.warm_up.end()
    assert not host.compute(0.0, JAVA)
    assert host.compute(0.0, JAVA | PYTHON), "of what has started by then"


def test_what_was_taken_back_stays_so_at_a_rest_before_the_first_task():
    host = Warming()
    host.compute(0.0, JAVA)
    assert host.compute(2.0, JAVA)
    host.warm_up.end()
    assert not host.rest(2.0, JAVA)
    assert not host.compute(1.0, JAVA)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"cores": 0}, "cores and cpu above 0, not 0 and 0.15"),
        ({"cpu": 0.0}, "cores and cpu above 0, not 1 and 0"),
        ({"heap_mb": 384}, "heap_mb 384 is too small: Spark asks for 450"),
        ({"memory_mb": 512}, "memory_mb 512 has no room beside heap_mb 512"),
    ],
)
def test_a_host_that_could_not_run_is_refused(shape, message):
    with pytest.raises(BadInput, match=message):
        HostShape(**shape)


@pytest.fixture
def group(tmp_path):
    (tmp_path / "mount").mkdir()
    group = find_hierarchy(tmp_path / "mount", make_version_1(tmp_path / "mount")).make("worker-1")
    show_figures(group)
    return group


@pytest.fixture
def host(group, tmp_path):
    """A host whose worker does nothing."""
    host = GroundHost("worker-1", "127.0.2.1", HostShape(cpu=0.5), group)
    host.start(["sleep", "600"], os.environ, tmp_path / "log")
    # it writes itself into the files of the group, over whatever stands there
    wait_for("the worker in its group", lambda: all(map(_has_process, group.directories)), every=0.01)
    yield host
    host.stop()
    assert not host.is_alive()


def _has_process(folder):
    members = folder / "cgroup.procs"
    return members.exists() and members.read_text().strip()


@pytest.fixture
def executor(host, group):
    """A process that looks like an executor of the host."""
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 600; true", "sh", "--executor-id", "3"])
    # a program that has just been started has no command line yet
    wait_for("its command line", psutil.Process(process.pid).cmdline, every=0.01)
    add_process(group, process.pid)
    yield process
    process.kill()
    process.wait()


def test_threads_of_tasks_are_known_by_their_name(tmp_path):
    for number, name in enumerate(("java", "executor-heartb")):
        thread = tmp_path / "20" / "task" / str(20 + number)
        thread.mkdir(parents=True)
        (thread / "comm").write_text(f"{name}\n")
    assert not has_task_thread(20, tmp_path)
    (thread / "comm").write_text("Executor task l\n")
    assert has_task_thread(20, tmp_path)
    assert not has_task_thread(21, tmp_path), "it has ended"


def quota(group):
    return int(read_settings(group.folders["cpu"]).get("cpu.cfs_quota_us", -1))


def test_quotas_of_a_host(host, group):
    assert read_settings(group.folders["memory"])["memory.limit_in_bytes"] == str(1280 << 20)
    assert quota(group) == -1, "at full speed until it is limited"
    host.limit()
    assert quota(group) == 50_000
    host.slow_down(10)
    assert quota(group) == 5_000
    host.release()
    host.look()
    assert quota(group) == -1
    host.limit()
    assert quota(group) == 5_000
    host.slow_down(1)
    assert quota(group) == 50_000
    with pytest.raises(BadInput):
        host.slow_down(0)


def test_a_host_is_at_full_speed_while_its_executor_starts(host, group, executor):
    host.limit()
    assert quota(group) == -1 and host.is_at_full_speed
    assert host.executors() == [executor.pid]
    show_figures(group, cpu_seconds=EXECUTOR_GIFT - 0.1)
    host.look()
    assert quota(group) == -1
    show_figures(group, cpu_seconds=EXECUTOR_GIFT)
    host.look()
    assert quota(group) == 50_000 and not host.is_at_full_speed


def test_a_start_can_be_limited_at_once(host, group, executor):
    host.limit(at_once=True)
    assert quota(group) == 50_000
    host.look()
    assert quota(group) == 50_000


def test_what_the_kernel_begins_to_kill_for_memory_dies_as_a_whole_but_for_the_worker(host, group, executor):
    show_figures(group, memory_kills=1)
    host.look()
    assert executor.wait(10) == -signal.SIGKILL
    assert host.is_alive()


def test_a_dead_host_cannot_be_paused(host, group):
    host.stop()
    with pytest.raises(ActionFailed, match="worker-1 is dead"):
        host.pause()
