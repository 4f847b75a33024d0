"""What may end on a driver's command line: Sage's own keys, with values that can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.sage.metrics import HeldSize, Parameter
from penstock.decide.sage.sizes import SIZING_KEYS, parse_value, sizing_settings, spark_settings
from penstock.errors import BadInput

HEAP, FRACTION = "spark.executor.memory", "spark.memory.fraction"
MEBIBYTE = 1024.0**2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.driver.extraJavaOptions", "-javaagent:/tmp/theirs.jar"),
        ("spark.executor.extraJavaOptions", "-javaagent:/tmp/theirs.jar"),
        ("spark.python.daemon.module", "theirs"),
        ("spark.jars", "/tmp/theirs.jar"),
        ("spark.penstock.journal", "/tmp/theirs.db"),
        ("spark.executor.memoryOverheadFactor", "0.1"),
        ("Spark.Executor.Memory", "2g"),
        ("spark.executor.memory ", "2g"),
        (7, "2g"),
    ],
)
def test_any_other_key_is_refused_by_name(key, value):
    with pytest.raises(BadInput, match="a restart may set only") as refused:
        sizing_settings({HEAP: "2g", key: value})
    assert repr(str(key)) in str(refused.value) and repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (HEAP, "2g -javaagent:/tmp/theirs.jar"),
        (HEAP, "2g\n--conf"),
        (HEAP, "1.5g"),
        (HEAP, "-2g"),
        (HEAP, ""),
        (HEAP, "449m"),
        (HEAP, "33t"),
        (HEAP, "9" * 5000),
        (HEAP, None),
        (HEAP, ["2g"]),
        (HEAP, "٢g"),
        ("spark.driver.memory", "1m"),
        ("spark.executor.memoryOverhead", "1p"),
        ("spark.executor.cores", "0"),
        ("spark.executor.cores", "1025"),
        ("spark.executor.cores", "2.0"),
        ("spark.task.cpus", True),
        (FRACTION, "nan"),
        (FRACTION, "1e-1"),
        (FRACTION, "0.99"),
        (FRACTION, "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_key(key, value):
    with pytest.raises(BadInput, match=f"^{key}: ") as refused:
        sizing_settings({key: value})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200


@pytest.mark.parametrize("given", [None, "spark.executor.memory=2g", ["spark.executor.memory"], 3])
def test_what_is_no_set_of_settings_is_refused(given):
    with pytest.raises(BadInput, match="is not a set of Spark settings"):
        sizing_settings(given)


@pytest.mark.parametrize(
    ("given", "written"),
    [("2g", "2g"), (" 2G ", "2g"), ("2048", "2048m"), ("02gb", "2g"), ("600000k", "600000k"), (512, "512m")],
)
def test_a_size_is_written_in_one_way(given, written):
    assert sizing_settings({HEAP: given}) == {HEAP: written}
    assert sizing_settings({HEAP: written}) == {HEAP: written}


@given(
    heap=st.integers(450, 1 << 24),
    overhead=st.integers(1, 1 << 24),
    fraction=st.integers(5, 95),
    slots=st.integers(1, 32),
    cpus=st.integers(1, 32),
)
def test_all_that_sage_writes_passes_unchanged(heap, overhead, fraction, slots, cpus):
    held = HeldSize(1, 1.0, 0.0, 0.01, 5000, 2000, 0.0)
    after = replace(
        held,
        heap_bytes=heap * MEBIBYTE,
        overhead_bytes=overhead * MEBIBYTE,
        memory_fraction=fraction / 100,
        cores=slots * cpus,
        task_cpus=cpus,
        driver_heap_bytes=heap * MEBIBYTE,
    )
    written = spark_settings(held, after)
    assert set(written) == set(SIZING_KEYS) - {"spark.executor.memoryOverheadFactor"}
    assert sizing_settings(written) == written


@pytest.mark.parametrize("parameter", [Parameter.HEAP, Parameter.OVERHEAD, Parameter.DRIVER_HEAP])
def test_an_operators_pin_has_the_same_bound(parameter: Parameter):
    with pytest.raises(BadInput, match="is too much"):
        parse_value(parameter, "33t", "pin")
