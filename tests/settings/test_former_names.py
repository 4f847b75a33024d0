"""A setting that was renamed: its former name still works, with a warning that says the new one."""

from __future__ import annotations

import logging

import pytest
from pydantic import Field

from penstock.errors import BadSettings
from penstock.settings.model import former_names, known_names
from penstock.settings.reference import describe_setting
from penstock.settings.sources import from_arguments, from_environment, from_spark, from_yaml

KNOWN, FORMER = ("policy_interval", "mode"), {"decide_every": "policy_interval"}


@pytest.mark.parametrize(
    ("read", "place"),
    [
        (lambda: from_yaml("mine.yaml", "mode: act\ndecide_every: 5s\n", KNOWN, FORMER), "mine.yaml line 2"),
        (lambda: from_environment({"PENSTOCK_DECIDE_EVERY": "5s"}, KNOWN, FORMER), "PENSTOCK_DECIDE_EVERY"),
        (
            lambda: from_spark({"spark.penstock.decide.every": "5s"}, KNOWN, FORMER),
            "spark.penstock.decide.every",
        ),
        (lambda: from_arguments({"decide_every": "5s"}, KNOWN, FORMER), "argument decide_every"),
    ],
    ids=["file", "environment", "Spark", "code"],
)
def test_a_former_name_works_and_warns_with_the_place_and_the_new_name(read, place, caplog):
    with caplog.at_level(logging.WARNING):
        found = read()
    assert found["policy_interval"].value == "5s" and "decide_every" not in found
    (warning,) = caplog.messages
    assert place in warning and "now called" in warning and "policy_interval" in warning.lower()


def test_both_names_with_different_values_contradict_each_other():
    same = from_arguments({"decide_every": 5, "policy_interval": 5}, KNOWN, FORMER)
    assert same["policy_interval"].value == 5
    with pytest.raises(BadSettings, match="contradicts argument decide_every"):
        from_arguments({"decide_every": 5, "policy_interval": 6}, KNOWN, FORMER)


def test_a_name_that_never_was_one_is_still_an_error():
    with pytest.raises(BadSettings, match="unknown setting; did you mean policy_interval"):
        from_arguments({"policy_intervall": 5}, KNOWN, FORMER)


def test_former_names_lead_to_settings_and_are_none():
    assert set(former_names().values()) <= set(known_names())
    assert not set(former_names()) & set(known_names())


def test_the_reference_tells_a_former_name():
    field = Field(10.0, description="How often.", json_schema_extra={"formerly": "decide_every"})
    assert "Formerly `decide_every`" in describe_setting("policy_interval", field)
    assert "Formerly" not in describe_setting("policy_interval", Field(10.0, description="How often."))
