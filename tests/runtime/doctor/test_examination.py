"""Looking at a real machine: directories, sockets, ports and commands that are really there, or are not."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.runtime.doctor.checks import judge_clock
from penstock.runtime.doctor.cluster import check_cluster, list_places, parse_defaults, read_defaults
from penstock.runtime.doctor.examination import (
    check_executor_python,
    check_java,
    check_journal,
    check_runtime_directory,
    examine,
)
from penstock.settings.model import Settings
from penstock_lab.ground.postgres_server import postgres_server


def write_command(path: Path, said: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    path.chmod(0o700)
    return path


def test_java_is_where_java_home_says_or_on_the_path(tmp_path: Path):
    write_command(tmp_path / "old" / "bin" / "java", 'java version "1.8.0"')
    write_command(tmp_path / "new" / "java", 'openjdk version "21.0.1"')
    path = {"PATH": str(tmp_path / "new")}
    assert check_java(path).found == f"Java 21 at {tmp_path}/new/java"
    assert "Java 8" in check_java({**path, "JAVA_HOME": str(tmp_path / "old")}).found
    assert "no Java" in check_java({**path, "JAVA_HOME": str(tmp_path / "none")}).found
    assert check_java({"PATH": str(tmp_path)}).found == "no Java at the PATH"


def test_the_python_of_executors_is_asked(tmp_path: Path):
    here = dict(os.environ)
    assert check_executor_python({"spark.pyspark.python": sys.executable}, here).fine
    assert not check_executor_python({}, {**here, "PYSPARK_PYTHON": str(tmp_path / "none")}).fine
    remote = {"spark.master": "spark://host:7077", "spark.pyspark.python": "/opt/python3"}
    assert "on the executors' machines" in check_executor_python(remote, here).found


def test_the_runtime_directory_takes_a_socket_or_says_why_not(tmp_path: Path):
    fine = check_runtime_directory(tmp_path / "run", True)
    assert fine.fine and "mode 0700" in fine.found and not list((tmp_path / "run").iterdir())
    (tmp_path / "open").mkdir(mode=0o755)
    problem = check_runtime_directory(tmp_path / "open", True)
    assert "open to other users" in problem.found and "mode 0700" in problem.way_out
    assert check_runtime_directory(tmp_path / "open", False).fine


def test_the_journal_opens_and_is_this_users_alone(tmp_path: Path):
    check, ahead = check_journal(str(tmp_path / "journal.db"))
    assert check.fine and check.found.endswith("opens and can be written, mode 0600") and ahead is None
    assert stat.S_IMODE((tmp_path / "journal.db").stat().st_mode) == 0o600
    (tmp_path / "notes").write_text("this is no database, and never was one")
    check, _ = check_journal(str(tmp_path / "notes"))
    assert not check.fine and "notes" in check.found
    check, _ = check_journal("postgresql://user:secret@127.0.0.1:1/none")
    assert not check.fine and "secret" not in check.found + check.way_out


def test_a_cluster_manager_answers_or_does_not(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        assert check_cluster({"spark.master": f"spark://127.0.0.1:{port}"}, {}).fine
        # one of several masters is enough: the others stand by
        assert check_cluster({"spark.master": f"spark://127.0.0.1:1,127.0.0.1:{port}"}, {}).fine
        assert check_cluster({"spark.master": f"k8s://https://127.0.0.1:{port}"}, {}).fine
    silent = check_cluster({"spark.master": f"spark://127.0.0.1:{port}"}, {})
    assert not silent.fine and f"127.0.0.1:{port} does not answer" in silent.found
    assert not check_cluster({"spark.master": "mesos://host:1"}, {}).fine
    assert check_cluster({"spark.master": "local[2]"}, {}).fine and check_cluster({}, {}).fine


def test_yarn_is_where_hadoops_settings_say(tmp_path: Path):
    yarn = {"spark.master": "yarn"}
    assert "HADOOP_CONF_DIR is not set" in check_cluster(yarn, {}).found
    assert "no yarn-site.xml" in check_cluster(yarn, {"HADOOP_CONF_DIR": str(tmp_path)}).found
    (tmp_path / "yarn-site.xml").touch()
    assert check_cluster(yarn, {"YARN_CONF_DIR": str(tmp_path)}).fine


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:x", "k8s://", "mesos://h:1"])
def test_a_master_without_a_place_is_refused(master: str):
    with pytest.raises((BadInput, ValueError)):
        list_places(master)


def test_defaults_are_read_as_spark_reads_them(tmp_path: Path):
    text = "# a remark\nspark.master   spark://h:1\n\nspark.app.name=two words\nspark.x = y = z\nlone\n"
    expected = {"spark.master": "spark://h:1", "spark.app.name": "two words", "spark.x": "y = z"}
    assert parse_defaults(text) == expected
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
    assert read_defaults({"SPARK_HOME": str(tmp_path)}) == expected
    assert read_defaults({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == expected
    assert read_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {} and read_defaults({}) == {}


def test_every_thing_is_looked_at_once(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        settings = Settings(
            journal=str(tmp_path / "journal.db"), runtime_directory=str(tmp_path / "run"), metrics=taken
        )
        found = {one.name: one for one in examine(settings, {}, os.environ)}
    assert list(found) == [
        "java",
        "spark",
        "executor python",
        "cluster",
        "scaling",
        "runtime directory",
        "journal",
        "ports",
        "clock",
        "extras",
    ]
    assert f"metrics {taken}: another process listens there" in found["ports"].found


def test_the_clock_is_compared_with_that_of_a_journal_on_a_server():
    with postgres_server() as server:
        check, ahead = check_journal(server.new_database())
    assert check.fine and ahead is not None and judge_clock(0.0, ahead, tolerance=30.0).fine
