"""Every section of settings: each bound holds at its edge and beyond, and nothing else is let in."""

from __future__ import annotations

import math
import re
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from penstock.errors import BadSettings
from penstock.settings.model import Settings, section_kinds

SIGNS = {"ge": (True, -1), "gt": (False, -1), "le": (True, 1), "lt": (False, 1)}
"""Bound → whether its edge is allowed, and in which direction beyond lies."""


def bounds():
    """Collect every bound of every field of every section: its edge, and a value beyond it."""
    found = []
    for kind in section_kinds().values():
        for name, field in kind.model_fields.items():
            whole = field.annotation in {int, int | None}
            limits = [
                (sign, getattr(one, sign)) for one in field.metadata for sign in SIGNS if hasattr(one, sign)
            ]
            for sign, edge in limits:
                allowed, way = SIGNS[sign]
                beyond = edge + way * (1 if whole else max(1.0, abs(edge)) * 1e-6)
                found.append(
                    pytest.param(kind, name, edge, allowed, beyond, id=f"{kind.__name__}.{name} {sign}")
                )
    return found


@pytest.mark.parametrize(("kind", "name", "edge", "allowed", "beyond"), bounds())
def test_every_bound_of_every_setting_holds_at_its_edge_and_beyond(kind, name, edge, allowed, beyond):
    field = kind.model_fields[name]
    alone = TypeAdapter(Annotated[field.annotation, *field.metadata])
    if allowed:
        assert alone.validate_python(edge) == edge
    else:
        with pytest.raises(BadSettings, match=kind.outer_name(name)):
            kind(**{name: edge})
    for wrong in (beyond, math.nan, math.inf, "much", True):
        with pytest.raises(BadSettings, match=kind.outer_name(name)):
            kind(**{name: wrong})


@pytest.mark.parametrize("kind", section_kinds().values(), ids=lambda kind: kind.__name__)
def test_sections_are_frozen_closed_and_have_defaults(kind):
    section = kind()
    assert section == kind(**dict(section))
    with pytest.raises(BadSettings, match="unheard_of"):
        kind(unheard_of=1)
    with pytest.raises(ValidationError):
        setattr(section, next(iter(kind.model_fields)), None)


@pytest.mark.parametrize(
    ("given_settings", "says"),
    [
        ({"min_executors": 3, "max_executors": 2}, "min_executors (3) exceeds max_executors (2)"),
        ({"threshold_scale_in_records": 150.0}, "is not below threshold_scale_out_records (150.0)"),
        ({"trigger_interval_scale_in_share": 0.9}, "is not below trigger_interval_scale_out_share (0.9)"),
        ({"dhalion_backpressure_share": 0.95}, "dhalion_backpressure_share (0.95) is not below"),
        ({"forecast_horizon": "100s", "forecast_season": "50s"}, "is not longer than forecast_horizon (100)"),
        ({"queueing_operator_targets": {"sink": 0}}, "the target of sink must be longer than 0 s"),
    ],
)
def test_settings_that_contradict_each_other_are_named(given_settings, says):
    with pytest.raises(BadSettings, match=re.escape(says)):
        Settings(**given_settings)
