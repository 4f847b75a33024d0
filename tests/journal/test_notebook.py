"""What a policy learned, carried over to the next driver through a real journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale
from penstock.errors import JournalUnavailable
from penstock.journal.notebook import KEEP_EVERY_SECONDS, OLDEST_SECONDS, Notebook, add_memory
from penstock.journal.store import Journal
from tests.dataflow.synthetic_batches import word_count
from tests.decide.slot_windows import window, words
from tests.fakes import a_window
from tests.loop_setting import FlakyRecord

OWNER, RATE = "my job", 280.0
"""Away from the edge of a wave of tasks, where a small error makes another size."""


class Unavailable:
    """A journal on a full disk."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        raise JournalUnavailable("the disk is full")

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        raise JournalUnavailable("the disk is full")


def test_only_what_has_changed_is_written_and_what_failed_is_tried_again(journal):
    flaky = FlakyRecord(journal)
    notebook = Notebook(flaky, OWNER, "sizes", again_after=100.0)
    notebook.write(1.0, {"f": {"n": 1}, "g": {"n": 2}})
    notebook.write(2.0, {"f": {"n": 1}, "g": {"n": 3}})
    assert journal.recall(OWNER, "sizes") == {"f": {"n": 1, "at": 1.0}, "g": {"n": 3, "at": 2.0}}
    flaky.broken = {"remember"}
    with pytest.raises(JournalUnavailable):
        notebook.write(3.0, {"f": {"n": 4}, "g": {"n": 3}})
    flaky.broken = set()
    notebook.write(4.0, {"f": {"n": 4}, "g": {"n": 3}})
    notebook.write(102.0, {"f": {"n": 4}, "g": {"n": 3}})
    assert notebook.read() == {"f": {"n": 4, "at": 4.0}, "g": {"n": 3, "at": 102.0}}


def seen(slots: int, at: float = 1000.0):
    query = word_count(noise=0.05, seed=int(at))
    batches = query.runs((2500, 2200, 2700, 2400), slots, first_id=int(at))
    held = window(replace(words(query, RATE, slots), batches=batches), executors=slots // 5, cores=5)
    return replace(held, start=at - 10.0, end=at)


def driver(memories: Journal | Unavailable):
    return add_memory(Ds2Policy(Goals()), memories, OWNER)


def expected_seconds(answer: object) -> float:
    if isinstance(answer, Hold):
        return answer.figures["batch_seconds"]
    assert isinstance(answer, Scale)
    return answer.expected.figures["batch_seconds"]


def test_a_policy_that_learns_nothing_is_left_as_it_is(journal):
    from penstock.decide.registry import make_policy
    from penstock.settings.model import Settings

    plain = make_policy("dynamic-allocation", Settings())
    assert add_memory(plain, journal, OWNER) is plain
    assert driver(journal).name == "ds2"


def test_the_next_driver_knows_what_this_one_has_learned(journal):
    first = driver(journal)
    first.propose(seen(15))
    first.propose(seen(10, 1000.0 + KEEP_EVERY_SECONDS))
    (body,) = journal.recall(OWNER, "costs").values()
    assert sorted(fit["slots"] for fit in body["fits"]) == [10, 15]

    later = 5000.0
    knowing, ignorant = driver(journal), add_memory(Ds2Policy(Goals()), journal, "another job")
    told, guessed = knowing.propose(seen(5, later)), ignorant.propose(seen(5, later))
    assert told != guessed
    informed = Ds2Policy(Goals())
    for slots, at in ((15, 4998.0), (10, 4999.0)):
        informed.propose(seen(slots, at))
    informed_by_itself = informed.propose(seen(5, later))
    assert expected_seconds(told) == pytest.approx(expected_seconds(informed_by_itself), rel=0.2)


def test_it_is_kept_once_a_minute_also_when_the_clock_goes_back(journal):
    policy, kept = driver(journal), []
    for at in (1000.0, 1010.0, 1059.0, 1060.0, 1030.0):
        policy.propose(seen(10, at))
        kept.append(journal.recall(OWNER, "costs")["words"]["at"])
    assert kept == [1000.0, 1000.0, 1000.0, 1060.0, 1030.0]


class Settled:
    """A policy that has learned all there is, and is asked what it was told when it began."""

    name = memory_kind = "settled"

    def __init__(self) -> None:
        self.told: Mapping[str, Mapping[str, Any]] = {}

    def propose(self, window: ApplicationWindow) -> Hold:
        return Hold("nothing new")

    def learned(self) -> Mapping[str, Mapping[str, Any]]:
        return {"known": {"obeyed": "ticket-12"}}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        self.told = known
        return ()


def test_what_has_not_changed_for_weeks_is_known_to_the_next_driver_all_the_same(journal):
    """An operator's force that was obeyed in the first of three weeks must not be obeyed again."""
    first, day = add_memory(Settled(), journal, OWNER), 86_400.0
    for number in range(21):
        first.propose(a_window(1000.0 + number * day))
    later = Settled()
    add_memory(later, journal, OWNER).propose(a_window(2000.0 + 20 * day))
    assert later.told["known"]["obeyed"] == "ticket-12"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"at": 999.0, "fits": "none"}, "is not used"),
        ({"at": 999.0, "fits": [{"slots": "ten"}]}, "is not used"),
        ({"at": 999.0}, "is not used"),
        ({"fits": []}, "too old or undated"),
        ({"at": 1000.0 - OLDEST_SECONDS - 1, "fits": []}, "too old or undated"),
        ({"at": 2000.0, "fits": []}, "too old or undated"),
    ],
)
def test_a_stale_or_unreadable_memory_costs_a_note_and_nothing_else(journal, caplog, body, said):
    journal.remember(999.0, OWNER, "costs", "words", body)
    answer = driver(journal).propose(seen(10))
    assert said in caplog.text
    assert answer == Ds2Policy(Goals()).propose(seen(10))


def test_a_journal_that_fails_costs_a_note_and_nothing_else(caplog):
    answer = driver(Unavailable()).propose(seen(10))
    assert not isinstance(answer, NotReady)
    assert caplog.text.count("the disk is full") == 2
