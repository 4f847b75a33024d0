"""What operators say of an application, as they write it: pins, vetoes and a force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.decide.sage_metrics import Overrides, Parameter, Rule
from penstock.decide.sage_values import value_of, written
from penstock.errors import BadInput

KEYS = frozenset({"by", "pin", "veto", "force"})


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of one application; a force is obeyed once, another id makes it another force.

    `values` are those that pinned parameters are to have; a pin without one keeps what is held.
    """

    overrides: Overrides = field(default_factory=Overrides)
    force_id: str = ""
    values: Mapping[Parameter, float] = field(default_factory=dict)


def no_word() -> Said:
    """Nobody said anything."""
    return Said()


def said_of(body: Any, place: str) -> Said:
    """What a plain object says; a bad one is an error that names the place."""
    if not isinstance(body, Mapping) or not set(body) <= KEYS:
        raise BadInput(f"{place}: an object with {', '.join(sorted(KEYS))} is expected")
    force = body.get("force") or {}
    if force and not (isinstance(force, Mapping) and set(force) == {"rule", "id"}):
        raise BadInput(f"{place}: force: a rule and an id are expected")
    pins = pins_of(_listed(body, "pin", place), place)
    vetoed = frozenset(rule_named(name, place) for name in _listed(body, "veto", place))
    forced = rule_named(force["rule"], place) if force else Rule.NONE
    overrides = Overrides(frozenset(pins), vetoed, forced, str(body.get("by", "")))
    values = {parameter: value for parameter, value in pins.items() if value is not None}
    return Said(overrides, str(force.get("id", "")), values)


def together(first: Said, second: Said) -> Said:
    """What both say; the second one's force counts."""
    by = second.overrides.by or first.overrides.by
    pinned = first.overrides.pinned | second.overrides.pinned
    vetoed = first.overrides.vetoed | second.overrides.vetoed
    forced = second if second.overrides.forced is not Rule.NONE else first
    values = {**first.values, **second.values}
    return Said(Overrides(pinned, vetoed, forced.overrides.forced, by), forced.force_id, values)


def pins_of(names: Sequence[object], place: str) -> dict[Parameter, float | None]:
    """Parameters that are pinned, with the value that each is to have; the last word on one counts."""
    found: dict[Parameter, float | None] = {}
    for name in names:
        parameter, sign, value = str(name).partition("=")
        known = parameter_named(parameter, place)
        found[known] = value_of(known, value.strip(), f"{place}: pin: {parameter}") if sign else None
    return found


def pin_written(parameter: Parameter, value: float | None) -> str:
    """A pin as operators write it, such as heap or heap=2048m."""
    name = parameter_name(parameter)
    return name if value is None else f"{name}={written(parameter, value)}"


def parameter_named(name: object, place: str) -> Parameter:
    """A parameter by its name."""
    try:
        return Parameter[str(name).upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(parameter_name(parameter) for parameter in Parameter)
        raise BadInput(f"{place}: pin: unknown parameter {name!r}; known: {known}") from None


def rule_named(name: object, place: str) -> Rule:
    """A rule by its number, such as P3."""
    number = str(name).upper().removeprefix("P")
    if not number.isdecimal() or not 1 <= int(number) <= max(Rule):
        raise BadInput(f"{place}: unknown rule {name!r}; known: P1 to P{int(max(Rule))}")
    return Rule(int(number))


def parameter_name(parameter: Parameter) -> str:
    """As operators write it."""
    return parameter.name.lower().replace("_", "-")


def _listed(body: Mapping[str, Any], key: str, place: str) -> Sequence[object]:
    given = body.get(key, ())
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadInput(f"{place}: {key}: a list is expected")
    return given
