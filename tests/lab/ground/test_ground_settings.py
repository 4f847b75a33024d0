"""Settings that a proving ground gives to drivers, and those it refuses before anything starts."""

import os
import re
import sys

import pytest

from penstock.errors import BadInput, NotFound
from penstock_lab.ground.control_groups import GroupsUnavailable
from penstock_lab.ground.hosts import HostShape
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.ground.spark_cluster import cluster_conf


def test_a_driver_gets_the_master_and_the_size_of_executors():
    ground = ProvingGround(host=HostShape(cores=2, cpu=0.3, heap_mb=600, memory_mb=2000))
    conf = ground.conf()
    assert re.fullmatch(r"spark://127\.0\.0\.1:\d+", conf["spark.master"])
    assert (conf["spark.executor.cores"], conf["spark.executor.memory"]) == ("2", "600m")
    assert "-XX:ActiveProcessorCount=2" in conf["spark.executor.extraJavaOptions"]


def test_a_session_of_this_process_is_a_cluster_like_others():
    ground = ProvingGround()
    shape = ground.shape("trial", executors=4, conf={"spark.task.cpus": "1"})
    assert (shape.master, shape.executors, shape.cores, shape.name) == (ground.url, 4, 1, "trial")
    conf = cluster_conf(shape)
    assert (conf["spark.driver.host"], conf["spark.task.cpus"]) == ("127.0.0.1", "1")
    assert conf["spark.executor.extraJavaOptions"] == ground.conf()["spark.executor.extraJavaOptions"]


def test_workers_of_other_processes_take_this_python():
    environment = ProvingGround().environment()
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert {key: environment[key] for key in os.environ if "SPARK" not in key} == {
        key: value for key, value in os.environ.items() if "SPARK" not in key
    }


def test_a_machine_without_control_groups_is_refused(tmp_path):
    expected = f"^{tmp_path} has no control groups for cpu, cpuacct, memory, freezer;"
    with pytest.raises(GroupsUnavailable, match=expected), ProvingGround(mount=tmp_path):
        raise AssertionError("it started")


def test_workers_that_the_machine_cannot_carry_are_refused():
    ground = ProvingGround()
    with pytest.raises(BadInput, match=r"2 workers want 2000 cores, the machine has \d+: they would slow"):
        ground.add_workers(2, HostShape(cpu=1000))
    with pytest.raises(BadInput, match="addresses for 250 workers"):
        ground.add_workers(251, HostShape(cpu=0.001))


def test_unknown_workers_are_named():
    with pytest.raises(NotFound, match="there is no worker-7"):
        ProvingGround().kill("worker-7")
    with pytest.raises(NotFound, match=r"no worker has the address 127\.0\.2\.9"):
        ProvingGround().find_worker("127.0.2.9")
