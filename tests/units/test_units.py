"""Durations and sizes as people and Spark write them, and sections made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from penstock.errors import BadSettings
from penstock.units.fields import (
    OptionalSize,
    Ratio,
    format_duration,
    parse_duration,
    parse_size,
    parse_spark_size,
)
from penstock.units.section import BadValue, Section


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("10s", 10),
        ("5min", 300),
        ("1h", 3600),
        ("500ms", 0.5),
        ("1d", 86400),
        ("2.5 s", 2.5),
        (" 10S ", 10),
        ("7", 7),
        (7, 7),
        (0.25, 0.25),
    ],
)
def test_durations_take_units_and_plain_seconds(written, seconds):
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written", ["", "s", "10 parsecs", "-3s", "1e400s", True, None, [], float("nan"), 10**400, "10s10s"]
)
def test_what_is_no_duration_is_refused(written):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(written)


@given(st.integers(min_value=0, max_value=10**9))
def test_a_written_duration_reads_back(milliseconds):
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(
        milliseconds / 1000, rel=1e-9
    )


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4g", 4 * 1024**3),
        ("512m", 512 * 1024**2),
        ("1.5g", 1.5 * 1024**3),
        ("64GB", 64 * 1024**3),
        (" 2 tb ", 2 * 1024**4),
        ("1P", 1024**5),
        ("7b", 7),
        ("100", 100 * 1024**2),
    ],
)
def test_spark_counts_in_1024_and_means_mebibytes_without_a_unit(written, size):
    assert parse_spark_size(written) == size


@pytest.mark.parametrize(
    ("written", "size"), [("512MB", 512e6), ("4GiB", 4 * 1024**3), ("10 kb", 1e4), ("5", 5)]
)
def test_people_tell_thousands_from_1024(written, size):
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "much", "-1g", "4 parsecs", "g", "9" * 400])
def test_what_is_no_size_is_refused_with_the_notation_that_was_asked_for(written):
    with pytest.raises(ValueError, match="is not a size such as 4g or 512m"):
        parse_spark_size(written)
    with pytest.raises(ValueError, match="is not a size such as 512MB, 4GB or 4GiB"):
        parse_size(written)


@given(st.integers(1, 10**6), st.sampled_from("kmgtp"))
def test_sizes_of_spark_are_whole_bytes(number, unit):
    assert parse_spark_size(f"{number}{unit}") == number * 1024 ** (" kmgtp".index(unit))


class Tank(Section):
    """A section as rooms declare them."""

    prefix: ClassVar[str] = "tank_"
    names: ClassVar[Mapping[str, str]] = {"depth": "water_depth"}

    low: Ratio = Field(1.0, ge=0, le=10, description="The lower mark.")
    depth: Ratio = Field(5.0, ge=0, description="How deep the water is.")
    size: OptionalSize = Field(None, description="How much it holds.")
    secret: str = Field("", max_length=3, description="The word.", json_schema_extra={"secret": True})
    leak: Ratio = Field(0.1, ge=0)


def test_a_field_with_a_description_is_a_setting_under_its_outer_name():
    assert list(Tank.settings()) == ["tank_low", "water_depth", "tank_size", "tank_secret"]
    assert (Tank.settings()["water_depth"][0], Tank.outer_name("leak")) == ("depth", "tank_leak")


def test_a_refused_value_is_named_as_it_is_written_outside():
    with pytest.raises(BadValue) as caught:
        Tank(depth=-1)
    assert caught.value.names == ("water_depth",)
    assert str(caught.value) == "water_depth: input should be greater than or equal to 0, got -1"
    with pytest.raises(BadSettings, match=r"tank_size: 'much' is not a size such as 4g or 512m, got 'much'"):
        Tank(size="much")


def test_a_secret_is_not_repeated_in_the_message():
    with pytest.raises(BadSettings, match="tank_secret") as caught:
        Tank(secret="hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_changed_copy_is_checked_and_leaves_the_first_alone():
    tank = Tank(size="64g")
    assert (tank.change(low=2).low, tank.low, tank.change(low=2).size) == (2.0, 1.0, 64 * 1024**3)
    with pytest.raises(BadSettings, match="tank_low"):
        tank.change(low=11)
