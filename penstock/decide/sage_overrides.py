"""What operators say of an application, as they write it: pins, vetoes and a force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.decide.sage_metrics import Overrides, Parameter, Rule
from penstock.errors import BadInput

KEYS = frozenset({"by", "pin", "veto", "force"})


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of one application; a force is obeyed once, another id makes it another force."""

    overrides: Overrides = field(default_factory=Overrides)
    force_id: str = ""


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
    pinned = frozenset(parameter_named(name, place) for name in _listed(body, "pin", place))
    vetoed = frozenset(rule_named(name, place) for name in _listed(body, "veto", place))
    forced = rule_named(force["rule"], place) if force else Rule.NONE
    return Said(Overrides(pinned, vetoed, forced, str(body.get("by", ""))), str(force.get("id", "")))


def together(first: Said, second: Said) -> Said:
    """What both say; the second one's force counts."""
    by = second.overrides.by or first.overrides.by
    pinned = first.overrides.pinned | second.overrides.pinned
    vetoed = first.overrides.vetoed | second.overrides.vetoed
    forced = second if second.overrides.forced is not Rule.NONE else first
    return Said(Overrides(pinned, vetoed, forced.overrides.forced, by), forced.force_id)


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
