"""What is found on a machine is judged, with the way out; each finding is a value."""

from __future__ import annotations

import pytest

from penstock.errors import BadInput
from penstock.runtime.doctor import checks
from penstock.runtime.doctor.checks import Check, Extra

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment\n'


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (JAVA_17, 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n" + JAVA_17, 17),
        ("command not found", None),
    ],
)
def test_java_says_its_version_in_several_ways(text: str, version: int | None):
    assert checks.read_java_version(text) == version


@pytest.mark.parametrize(
    ("said", "fine", "found"),
    [
        (JAVA_17, True, "Java 17 at /usr/bin/java"),
        ('java version "1.8.0_402"', False, "Java 8 at /usr/bin/java"),
        ("no version", False, "does not say its version"),
        (None, False, "no Java at /usr/bin/java"),
    ],
)
def test_java_has_to_be_17_or_later(said: str | None, fine: bool, found: str):
    check = checks.judge_java("/usr/bin/java", said)
    assert check.fine is fine and found in check.found
    assert fine or "install Java 17 or later" in check.way_out


@pytest.mark.parametrize(
    ("pyspark", "home", "fine"),
    [
        ("4.1.4", None, True),
        ("4.3.0", None, True),
        ("4.0.1", None, False),
        ("4.4.0", None, False),
        ("unknown", None, False),
        (None, None, False),
        ("4.3.0", ("/opt/spark", "4.3.1"), True),
        ("4.3.0", ("/opt/spark", "4.1.4"), False),
        ("4.3.0", ("/opt/spark", None), False),
    ],
)
def test_spark_is_one_that_was_tried_and_the_same_in_python_and_java(pyspark, home, fine: bool):
    assert checks.judge_spark(pyspark, home).fine is fine


@pytest.mark.parametrize(
    ("there", "elsewhere", "fine"),
    [
        ("3.11.9", False, True),
        ("3.12.1", False, False),
        (None, False, False),
        (None, True, True),
        ("3.10.1", True, False),
    ],
)
def test_executors_need_the_minor_version_of_the_driver(there: str | None, elsewhere: bool, fine: bool):
    check = checks.judge_executor_python((3, 11), "python3", there, elsewhere)
    assert check.fine is fine and "3.11" in check.found + check.way_out


STANDALONE = {"spark.master": "spark://host:7077", "spark.executor.cores": "2"}


@pytest.mark.parametrize(
    ("conf", "fine", "said"),
    [
        ({}, True, "no spark.master is set"),
        ({"spark.master": "local[4]"}, True, "only observing"),
        ({"spark.master": "local-cluster[2,1,512]"}, True, "can be added and released"),
        ({**STANDALONE, "spark.dynamicAllocation.enabled": "True"}, False, "two controllers would fight"),
        (
            {**STANDALONE, "spark.cores.max": "7"},
            True,
            "room for 3 executors of 2 cores, and max_executors is 10",
        ),
        ({**STANDALONE, "spark.cores.max": "1"}, False, "no executor will come"),
        ({**STANDALONE, "spark.cores.max": "20"}, True, "can be added"),
        ({"spark.master": "yarn", "spark.executor.cores": "2", "spark.cores.max": "7"}, True, "can be added"),
        ({**STANDALONE, "spark.executor.cores": "0", "spark.cores.max": "7"}, True, "can be added"),
    ],
)
def test_what_keeps_executors_from_coming_is_told_before_they_are_asked_for(conf, fine: bool, said: str):
    check = checks.judge_scaling(conf, 10)
    assert check.fine is fine and said in check.found


def test_a_port_that_is_taken_is_named():
    check = checks.judge_ports({"metrics 127.0.0.1:1": "another process listens there", "dashboard": None})
    assert check.found == "metrics 127.0.0.1:1: another process listens there" and not check.fine
    assert checks.judge_ports({"dashboard 127.0.0.1:0": None}).fine and checks.judge_ports({}).fine


@pytest.mark.parametrize(
    ("slip", "ahead", "fine"),
    [(0.0, None, True), (0.0, 2.0, True), (0.0, -31.0, False), (1.0, None, False), (-1.0, 0.0, False)],
)
def test_clocks_that_part_are_told(slip: float, ahead: float | None, fine: bool):
    assert checks.judge_clock(slip, ahead, tolerance=30.0).fine is fine


def test_an_extra_is_missed_only_where_a_setting_needs_it():
    kafka = Extra("kafka", False, None)
    assert checks.judge_extras([kafka, Extra("postgres", True, "a journal in PostgreSQL")]) == Check(
        "extras", "installed: postgres; not needed here: kafka"
    )
    missed = checks.judge_extras([kafka, Extra("otel", False, "otlp_endpoint")])
    assert (missed.found, missed.way_out) == (
        "otlp_endpoint needs the extra otel",
        "pip install 'penstock[otel]'",
    )


def test_a_check_is_plain_data_for_programs():
    assert Check("java", "none", "install it").plain() == {
        "check": "java",
        "ok": False,
        "found": "none",
        "way_out": "install it",
    }
    assert Check("java", "Java 17").plain()["way_out"] is None


YARN = {"spark.master": "yarn", "spark.executor.cores": "4"}


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        (YARN, 8),
        ({**YARN, "spark.executor.instances": "5"}, 20),
        ({**YARN, "spark.task.cpus": "3"}, 2),
        ({"spark.master": "k8s://https://host"}, 2),
        ({"spark.master": "local-cluster[3, 2, 1024]"}, 6),
        ({"spark.master": "local[4]"}, 4),
        ({"spark.master": "local[*]"}, None),
        ({"spark.master": "spark://host:7077"}, None),
        ({"spark.master": "spark://host:7077", "spark.cores.max": "9", "spark.executor.cores": "2"}, 8),
        ({}, None),
    ],
)
def test_the_slots_of_a_start_are_those_that_settings_say(conf: dict[str, str], slots: int | None):
    assert checks.count_slots(conf) == slots


def test_a_query_in_real_time_mode_needs_a_slot_for_each_task():
    enough = checks.judge_real_time(YARN, checks.parse_real_time("8"), 20)
    assert enough.fine and enough.found == "8 slots are needed at once, one for each task: 8 are held"
    short = checks.judge_real_time(YARN, checks.parse_real_time("8+1"), 20)
    assert (
        "208 slots (8 + 200) are needed at once, one for each task: 8 are held, 200 are missing"
        in short.found
    )
    assert short.way_out == (
        "start with 52 executors of 4 cores (max_executors is 20), or lower "
        "spark.sql.shuffle.partitions, 200 for each shuffle"
    )
    fewer = {**YARN, "spark.sql.shuffle.partitions": "4", "spark.executor.instances": "3"}
    assert checks.judge_real_time(fewer, checks.parse_real_time("8+1"), 20).fine
    local = checks.judge_real_time({"spark.master": "local[4]"}, checks.parse_real_time("8"), None)
    assert local.way_out == "use local[8]"
    cluster = {"spark.master": "local-cluster[1,2,1024]"}
    assert checks.judge_real_time(cluster, checks.parse_real_time("8"), 9).way_out == (
        "start with 4 executors of 2 cores"
    )
    assert checks.judge_real_time({}, checks.parse_real_time("8"), None).fine
    dynamic = checks.judge_real_time(
        {**YARN, "spark.dynamicAllocation.enabled": "true"}, checks.parse_real_time("1"), 20
    )
    assert "refuses" in dynamic.found and not dynamic.fine


@pytest.mark.parametrize("text", ["", "0", "twelve", "12+", "+1", "12+1+1", "-3", "٣"])
def test_partitions_that_are_none_are_bad_input(text: str):
    with pytest.raises(BadInput, match="such as 12 or 12"):
        checks.parse_real_time(text)
