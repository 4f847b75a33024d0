"""Policies built as the registry does it, from single fields of their sections."""

from __future__ import annotations

from penstock.decide.policy import Policy
from penstock.decide.registry import policy_entry


def built(policy: str, /, **fields: object) -> Policy:
    """Build the policy of this name; each field goes to the section that has it."""
    entry, left = policy_entry(policy), dict(fields)
    sections = [
        kind(**{name: left.pop(name) for name in kind.model_fields if name in left})
        for kind in entry.sections
    ]
    assert not left, f"no section of {policy} has {sorted(left)}"
    return entry.build(*sections)
