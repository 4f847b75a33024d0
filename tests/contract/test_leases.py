"""Who leads, in every store of the journal: one at a time, and what an earlier leader wants is refused."""

from __future__ import annotations

import threading

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.verdict import Accepted
from penstock.errors import NotLeading
from penstock.journal.leases import Lease
from penstock.journal.store import Journal
from tests.contract.conftest import Opener
from tests.fakes import APPLICATION, a_scale


def intend(journal: Journal, executors: int) -> int:
    action = a_scale(executors)
    decision = journal.decided(20.0, APPLICATION, action, Accepted(action, ()), policy="ds2")
    return journal.intend(20.0, APPLICATION, decision, action, {EXECUTORS: 2})


def test_whoever_comes_first_leads_and_says_so_again_and_again(journal: Journal):
    assert journal.leases.seen("words") is None
    first = journal.leases.take("words", "a", None)
    assert first == Lease("words", "a", 1, 0)
    assert journal.leases.renew(first) == journal.leases.seen("words") == Lease("words", "a", 1, 1)


def test_a_lease_is_taken_over_only_as_it_was_seen(journal: Journal):
    first = journal.leases.take("words", "a", None)
    renewed = journal.leases.renew(first)
    assert journal.leases.take("words", "b", first) is None
    assert journal.leases.take("words", "b", None) is None
    assert journal.leases.take("words", "b", renewed) == Lease("words", "b", 2, 0)
    assert journal.leases.renew(renewed) is None
    assert journal.leases.seen("words").holder == "b"


def test_a_lease_that_is_given_back_is_free_and_its_terms_go_on(journal: Journal):
    first = journal.leases.take("words", "a", None)
    journal.leases.release(journal.leases.renew(first))
    free = journal.leases.seen("words")
    assert free.free
    second = journal.leases.take("words", "b", free)
    journal.leases.release(first)
    assert journal.leases.seen("words") == second == Lease("words", "b", 2, 0)


def test_names_are_led_apart(journal: Journal):
    journal.leases.take("words", "a", None)
    assert journal.leases.take("clicks", "b", None) == Lease("clicks", "b", 1, 0)


def test_of_many_that_reach_for_it_at_once_one_gets_it(open_store: Opener):
    journals = [open_store() for _ in range(6)]
    taken: list[Lease] = []

    def reach(number: int) -> None:
        lease = journals[number].leases.take("words", str(number), None)
        if lease is not None:
            taken.append(lease)

    threads = [threading.Thread(target=reach, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1 and taken[0] == journals[0].leases.seen("words")


def test_an_intent_is_written_by_the_leader_alone(open_store: Opener):
    first, second = open_store(), open_store()
    lease = first.leases.take("words", "a", None)
    first = first.bind_to(lambda: lease)
    intend(first, 3)
    later = second.leases.take("words", "b", lease)
    second = second.bind_to(lambda: later)
    with pytest.raises(NotLeading):
        intend(first, 4)
    intend(second, 5)
    assert [record.planned[EXECUTORS] for record in first.actions(APPLICATION)] == [3, 5]
    second.leases.release(later)
    with pytest.raises(NotLeading):
        intend(second, 6)
    second = second.bind_to(lambda: None)
    with pytest.raises(NotLeading):
        intend(second, 7)
