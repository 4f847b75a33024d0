"""Leading and taking over, with a clock of the test's own; the store is a real journal."""

from __future__ import annotations

from penstock.errors import JournalUnavailable
from penstock.journal.leading import Leadership, LeaseKeeper
from penstock.journal.leases import Lease
from penstock.pipeline.board import Board, SizeMemory, Sizes
from tests.waiting import wait_for


def candidate(journal, holder, patience=8.0):
    return Leadership(journal.leases, "words", holder, patience)


def test_one_leads_and_another_takes_over_when_nothing_has_moved_for_as_long_as_the_lease(journal):
    first, second = candidate(journal, "a"), candidate(journal, "b")
    assert first.step(0.0) == Lease("words", "a", 1, 0)
    assert second.step(100.0) is None and second.leader == "a"
    first.step(2.0)
    assert second.step(107.0) is None
    assert second.step(114.0) is None
    assert second.step(115.0) == Lease("words", "b", 2, 0)
    assert (second.before, second.leader) == ("a", "b")
    assert first.step(4.0) is None and first.leader is None
    assert first.step(5.0) is None and first.leader == "b"


def test_a_lease_that_was_given_back_is_taken_at_once_and_nothing_was_left_open(journal):
    first, second = candidate(journal, "a"), candidate(journal, "b")
    first.step(0.0)
    second.step(0.0)
    first.give_back()
    assert second.step(0.1).term == 2
    assert second.before == ""


def test_one_who_has_lost_the_lead_watches_as_long_as_all_others(journal):
    first, second = candidate(journal, "a"), candidate(journal, "b")
    first.step(0.0)
    second.step(0.0)
    assert second.step(9.0).term == 2
    assert first.step(20.0) is None
    assert first.step(21.0) is None
    assert first.step(28.0) is None
    assert first.step(29.0).term == 3


class Away:
    """A store that can be taken away."""

    def __init__(self, store):
        self.store, self.away = store, False

    def __getattr__(self, name):
        if self.away:
            raise JournalUnavailable("the server is away")
        return getattr(self.store, name)


def test_while_the_store_is_away_everyone_stays_what_he_is(journal):
    store = Away(journal.leases)
    leader = Leadership(store, "words", "a", 8.0)
    other = Leadership(store, "words", "b", 8.0)
    leader.step(0.0)
    other.step(0.0)
    store.away = True
    assert leader.step(50.0) is not None
    assert other.step(50.0) is None
    leader.give_back()
    store.away = False
    assert other.step(51.0).holder == "b"


def test_a_keeper_leads_from_its_start_on_and_gives_back(journal):
    keeper = LeaseKeeper(candidate(journal, "a", patience=0.2))
    keeper.start()
    assert keeper.lease is not None
    wait_for("a second beat", lambda: journal.leases.seen("words").beats >= 2)
    keeper.stop()
    keeper.stop()
    assert keeper.lease is None and journal.leases.seen("words").free


def test_sizes_and_pins_are_those_of_the_run_before(journal):
    board = Board({"f": (1, 8), "g": (1, 8)}, {"g": 3})
    memory = SizeMemory(journal, "words")
    assert memory.recall() == Sizes()
    board.pin("f", 5)
    memory.keep(1.0, board)
    assert SizeMemory(journal, "words").recall() == Sizes({"f": 5, "g": 3}, {"f": 5})
    board.pin("f", None)
    memory.keep(2.0, board)
    assert SizeMemory(journal, "words").recall().pinned == {}
    assert SizeMemory(journal, "others").recall() == Sizes()


def test_sizes_that_cannot_be_read_or_kept_are_done_without(journal):
    away = Away(journal)
    memory, away.away = SizeMemory(away, "words"), True
    assert memory.recall() == Sizes()
    memory.keep(1.0, Board({"f": (1, 8)}, {}))
    journal.remember(1.0, "words", "pipeline sizes", "f", {"instances": "many"})
    assert SizeMemory(journal, "words").recall() == Sizes()
