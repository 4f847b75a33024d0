"""Orders of operators for an application, as they write them: pins, vetoes and a force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.decide.sage.metrics import Overrides, Parameter, Rule
from penstock.decide.sage.sizes import parse_value, write_value
from penstock.errors import BadInput

KEYS = frozenset({"by", "pin", "veto", "force"})


@dataclass(frozen=True, slots=True)
class Said:
    """The orders for one application; a force is obeyed once, another id makes it another force.

    `values` are those that pinned parameters are to have; a pin without one keeps what is held.
    """

    overrides: Overrides = field(default_factory=Overrides)
    force_id: str = ""
    values: Mapping[Parameter, float] = field(default_factory=dict)


def parse_said(body: Any, place: str) -> Said:
    """Parse what a plain object says; BadInput names the place of a bad one."""
    if not isinstance(body, Mapping) or not set(body) <= KEYS:
        raise BadInput(f"{place}: an object with {', '.join(sorted(KEYS))} is expected")
    force = body.get("force") or {}
    if force and not (isinstance(force, Mapping) and set(force) == {"rule", "id"}):
        raise BadInput(f"{place}: force: a rule and an id are expected")
    pins = parse_pins(_read_list(body, "pin", place), f"{place}: pin")
    vetoed = frozenset(find_rule(name, place) for name in _read_list(body, "veto", place))
    forced = find_rule(force["rule"], place) if force else Rule.NONE
    overrides = Overrides(frozenset(pins), vetoed, forced, str(body.get("by", "")))
    values = {parameter: value for parameter, value in pins.items() if value is not None}
    return Said(overrides, str(force.get("id", "")), values)


def combine_said(first: Said, second: Said) -> Said:
    """Return what both say; the second one's force counts."""
    by = second.overrides.by or first.overrides.by
    pinned = first.overrides.pinned | second.overrides.pinned
    vetoed = first.overrides.vetoed | second.overrides.vetoed
    forced = second if second.overrides.forced is not Rule.NONE else first
    values = {**first.values, **second.values}
    return Said(Overrides(pinned, vetoed, forced.overrides.forced, by), forced.force_id, values)


def parse_pins(names: Sequence[object], place: str) -> dict[Parameter, float | None]:
    """Parse pinned parameters, with the value that each is to have; the last word on one counts."""
    found: dict[Parameter, float | None] = {}
    for name in names:
        parameter, sign, value = str(name).partition("=")
        known = find_parameter(parameter, place)
        found[known] = parse_value(known, value.strip(), f"{place}: {parameter}") if sign else None
    return found


def write_pin(parameter: Parameter, value: float | None) -> str:
    """Write a pin as operators do, such as heap or heap=2048m."""
    name = name_parameter(parameter)
    return name if value is None else f"{name}={write_value(parameter, value)}"


def find_parameter(name: object, place: str) -> Parameter:
    """Find a parameter by its name."""
    try:
        return Parameter[str(name).upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(name_parameter(parameter) for parameter in Parameter)
        raise BadInput(f"{place}: unknown parameter {name!r}; known: {known}") from None


def find_rule(name: object, place: str) -> Rule:
    """Find a rule by its number, such as P3."""
    number = str(name).upper().removeprefix("P")
    # Python makes no number of thousands of digits
    if not number.isdecimal() or len(number) > 9 or not 1 <= int(number) <= max(Rule):
        raise BadInput(f"{place}: unknown rule {str(name)[:80]!r}; known: P1 to P{int(max(Rule))}")
    return Rule(int(number))


def name_parameter(parameter: Parameter) -> str:
    """Return the name that operators write."""
    return parameter.name.lower().replace("_", "-")


def _read_list(body: Mapping[str, Any], key: str, place: str) -> Sequence[object]:
    given = body.get(key, ())
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadInput(f"{place}: {key}: a list is expected")
    return given
