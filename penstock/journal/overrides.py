"""Overrides by operators, kept in the journal under the application's name, with who said what and when.

This is the one store of overrides: `penstock override` writes it, an application's own policy asks for its
own, and a fleet's controller for those of all applications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.decide.sage.overrides import Said, find_rule, parse_pins, parse_said, write_pin
from penstock.errors import BadInput, PenstockError
from penstock.journal.ports import Memories

KIND, KEY = "overrides", "said"
SPOKEN = ("pin", "veto", "force", "by")
MOST_WORDS = 100
Body = dict[str, Any]


def add_override(
    memories: Memories,
    now: float,
    application: str,
    by: str,
    pin: Sequence[str] = (),
    veto: Sequence[str] = (),
    force: str | None = None,
    clear: bool = False,
) -> Body:
    """Add to what is in force, or begin anew with `clear`; return what is in force then."""
    word = {
        "at": now,
        "by": by,
        "clear": clear,
        "pin": [write_pin(*one) for one in parse_pins(pin, "--pin").items()],
        "veto": [f"P{int(find_rule(name, '--veto'))}" for name in veto],
        "force": f"P{int(find_rule(force, '--force'))}" if force is not None else None,
    }
    return memories.revise(now, application, KIND, KEY, lambda known: _merge(_complete(known), word))


def recall_overrides(memories: Memories, application: str) -> Body:
    """Return what is in force for the application, and the log of who said what."""
    return _complete(memories.recall(application, KIND).get(KEY))


def recall_all_overrides(memories: Memories) -> tuple[dict[str, Said], dict[str, str]]:
    """Return application → what was said of it, and application → why its words cannot be used."""
    said: dict[str, Said] = {}
    problems: dict[str, str] = {}
    for application, known in memories.recall_all(KIND).items():
        try:
            said[application] = _parse(_complete(known.get(KEY)), application)
        except BadInput as error:
            problems[application] = str(error)
    return said, problems


class OperatorsWord:
    """The operators' present word, asked for at each call; the last known while the journal is away."""

    def __init__(self, memories: Memories, application: str) -> None:
        self._memories, self._application = memories, application
        self._known = Said()

    def __call__(self) -> Said:
        """Return pins, vetoes and a force."""
        try:
            self._known = _parse(recall_overrides(self._memories, self._application), self._application)
        except PenstockError:
            return self._known
        return self._known


def _parse(body: Body, application: str) -> Said:
    return parse_said({key: body[key] for key in SPOKEN}, f"overrides of {application}")


def _complete(body: Mapping[str, Any] | None) -> Body:
    return {"pin": [], "veto": [], "force": None, "by": "", "log": [], **(body or {})}


def _merge(known: Body, word: Body) -> Body:
    """Return what is in force once another word is said; two operators may say theirs at the same time."""
    held = _complete(None) if word["clear"] else known
    force = {"rule": word["force"], "id": f"{word['at']:.6f}"} if word["force"] else held["force"]
    return {
        "pin": sorted(write_pin(*one) for one in parse_pins([*held["pin"], *word["pin"]], "--pin").items()),
        "veto": sorted({*held["veto"], *word["veto"]}),
        "force": force,
        "by": word["by"],
        "log": [*known["log"], word][-MOST_WORDS:],
    }
