"""What is found on a machine is judged, with the way out; each finding is a value."""

from __future__ import annotations

import pytest

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
