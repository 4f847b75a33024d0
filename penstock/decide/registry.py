"""The policies by name: how `--policy` and the setting `policy` find them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decide.policy import Policy
from penstock.errors import BadSettings

if TYPE_CHECKING:
    from penstock.settings import Settings


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be asked for, and how it is made from settings."""

    name: str
    summary: str
    make: Callable[[Settings], Policy]


def _ds2(settings: Settings) -> Policy:
    from penstock.decide.ds2 import Ds2Policy

    return Ds2Policy(settings.ds2())


POLICIES: Mapping[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            "ds2",
            "true rates and one traversal of the dataflow give the right size in one step",
            _ds2,
        ),
    )
}


def policy_entry(name: str) -> PolicyEntry:
    """Find a policy; an unknown name is an error that suggests the nearest one."""
    if name in POLICIES:
        return POLICIES[name]
    near = difflib.get_close_matches(name.lower(), POLICIES, n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(POLICIES))}"
    raise BadSettings(f"policy: unknown policy {name!r}{hint}")


def make_policy(settings: Settings) -> Policy:
    """The policy that the settings name."""
    return policy_entry(settings.policy).make(settings)
