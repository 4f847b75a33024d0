"""What operators said of applications, kept in the journal under the application's name, with who said it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.decide.sage_overrides import Said, no_word, pin_written, pins_of, rule_named, said_of
from penstock.errors import PenstockError

KIND, KEY = "overrides", "said"
MOST_WORDS = 100


class Memories(Protocol):
    """The journal, as far as memories go; raises JournalUnavailable."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        """Write over what is known by this key."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Key → what is known."""


def said_by_operators(memories: Memories, application: str) -> dict[str, Any]:
    """What is in force for the application, and the log of who said what."""
    body = dict(memories.recall(application, KIND).get(KEY, {}))
    return {"pin": [], "veto": [], "force": None, "by": "", "log": [], **body}


def override(
    memories: Memories,
    now: float,
    application: str,
    by: str,
    pin: Sequence[str] = (),
    veto: Sequence[str] = (),
    force: str | None = None,
    clear: bool = False,
) -> dict[str, Any]:
    """Add to what is in force, or begin anew with `clear`; gives what is in force then."""
    pins = [pin_written(*one) for one in pins_of(pin, "--pin").items()]
    vetoes = [f"P{int(rule_named(name, '--veto'))}" for name in veto]
    known = said_by_operators(memories, application)
    held: dict[str, Any] = {"pin": [], "veto": [], "force": None} if clear else known
    body = {
        "pin": sorted(pin_written(*one) for one in pins_of([*held["pin"], *pins], "--pin").items()),
        "veto": sorted({*held["veto"], *vetoes}),
        "force": held["force"],
        "by": by,
    }
    if force is not None:
        body["force"] = {"rule": f"P{int(rule_named(force, '--force'))}", "id": f"{now:.3f}"}
    word = {"at": now, "by": by, "clear": clear, "pin": pins, "veto": vetoes, "force": force}
    body["log"] = [*known["log"], word][-MOST_WORDS:]
    memories.remember(now, application, KIND, KEY, body)
    return body


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
