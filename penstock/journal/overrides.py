"""What operators said of applications, kept in the journal under the application's name, with who said it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from penstock.decide.sage_overrides import Said, no_word, pin_written, pins_of, rule_named, said_of
from penstock.errors import PenstockError

KIND, KEY = "overrides", "said"
MOST_WORDS = 100
Body = dict[str, Any]


class Memories(Protocol):
    """The journal, as far as memories go; raises JournalUnavailable."""

    def revise(
        self, now: float, owner: str, kind: str, key: str, change: Callable[[Body | None], Body]
    ) -> Body:
        """Change what is known by this key in one go."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Key → what is known."""


def said_by_operators(memories: Memories, application: str) -> Body:
    """What is in force for the application, and the log of who said what."""
    return _whole(memories.recall(application, KIND).get(KEY))


def _whole(body: Mapping[str, Any] | None) -> Body:
    return {"pin": [], "veto": [], "force": None, "by": "", "log": [], **(body or {})}


def override(
    memories: Memories,
    now: float,
    application: str,
    by: str,
    pin: Sequence[str] = (),
    veto: Sequence[str] = (),
    force: str | None = None,
    clear: bool = False,
) -> Body:
    """Add to what is in force, or begin anew with `clear`; gives what is in force then."""
    word = {
        "at": now,
        "by": by,
        "clear": clear,
        "pin": [pin_written(*one) for one in pins_of(pin, "--pin").items()],
        "veto": [f"P{int(rule_named(name, '--veto'))}" for name in veto],
        "force": f"P{int(rule_named(force, '--force'))}" if force is not None else None,
    }
    return memories.revise(now, application, KIND, KEY, lambda known: _with(_whole(known), word))


def _with(known: Body, word: Body) -> Body:
    """What is in force once another word is said; two operators may say theirs at the same time."""
    held = _whole(None) if word["clear"] else known
    force = {"rule": word["force"], "id": f"{word['at']:.6f}"} if word["force"] else held["force"]
    return {
        "pin": sorted(pin_written(*one) for one in pins_of([*held["pin"], *word["pin"]], "--pin").items()),
        "veto": sorted({*held["veto"], *word["veto"]}),
        "force": force,
        "by": word["by"],
        "log": [*known["log"], word][-MOST_WORDS:],
    }


class OperatorsWord:
    """What operators say now, asked for anew at each call; the last known while the journal is away."""

    def __init__(self, memories: Memories, application: str) -> None:
        self._memories, self._application = memories, application
        self._known = no_word()

    def __call__(self) -> Said:
        """Pins, vetoes and a force."""
        try:
            body = said_by_operators(self._memories, self._application)
            spoken = {key: body[key] for key in ("pin", "veto", "force", "by")}
            self._known = said_of(spoken, f"overrides of {self._application}")
        except PenstockError:
            return self._known
        return self._known
