"""P2 and P7: what is resident beside the heap, what surely is, and what a step goes to."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock.decide.sage.metrics import Overrides, Rule, SizingInput, Symptom
from penstock.decide.sage.rounds import decide
from penstock.decide.sage.settings import SageSettings
from tests.decide.sizing import A_SIZE, GIB, MIB, Recorder, decision_on, fires_on


def test_a_kill_asks_for_more_whatever_was_measured():
    decision = decision_on(memory_used_bytes=math.nan, memory_kill_count=[0.0] * 39 + [1.0])
    assert decision.symptom is Symptom.MEMORY_KILL


@pytest.mark.parametrize(("beside", "wanted"), [(1.09, 1396), (1.29, 1652), (4.0, 5120)])
def test_one_step_goes_to_what_is_resident_with_a_quarter_on_top(beside, wanted):
    decision = decision_on(heap_committed_bytes=5.75 * GIB, memory_used_bytes=(5.75 + beside) * GIB)
    assert decision.symptom is Symptom.OVERHEAD_USED
    assert decision.after.overhead_bytes == wanted * MIB


@pytest.mark.parametrize(("grown", "wanted"), [(0.13, 1396), (0.15, 1690)])
def test_what_still_grows_gets_half_as_much_again(grown, wanted):
    """1.09 GiB need 1.3625 with headroom, of which P2 leaves 1.226 alone: 0.136 more would fit."""
    beside = [1.09 * GIB] * 34 + [(1.09 - grown) * GIB, *[1.09 * GIB] * 5]
    decision = decision_on(memory_used_bytes=[5.8 * GIB + one for one in beside])
    assert decision.after.overhead_bytes == wanted * MIB


def test_a_kill_or_a_force_gets_half_as_much_again():
    decision = decision_on(memory_kill_count=[0.0] * 39 + [1.0])
    assert decision.after.overhead_bytes == 1690 * MIB
    clock = Recorder()
    now, forced = clock.run(40), Overrides(forced=Rule.MEMORY_UP)
    decision = decide(SizingInput(now, clock.history, A_SIZE, overrides=forced), SageSettings()).decision
    assert decision is not None and decision.symptom is Symptom.FORCED
    assert decision.after.overhead_bytes == 1690 * MIB


def test_heap_that_was_committed_and_perhaps_never_touched_asks_for_nothing():
    """3 of 5.8 GiB may be untouched: 4.09 GiB may be beside the heap, 1.1 surely are, 0.9 are not."""
    likely = {"memory_used_bytes": (5.8 + 4.09) * GIB}
    assert fires_on(beside_heap_bytes=0.9 * GIB, **likely) is Rule.NONE
    decision = decision_on(beside_heap_bytes=1.1 * GIB, **likely)
    assert decision.after.overhead_bytes == 5236 * MIB, "then what is likely"


def test_a_full_heap_alone_is_not_a_full_container():
    assert fires_on(heap_committed_bytes=6.0 * GIB, memory_used_bytes=6.8 * GIB) is Rule.NONE


def test_untouched_pages_of_the_heap_do_not_hide_what_is_beside_it():
    """Resident 4.0 GiB below 5.8 committed, 3.6 used: 0.4 may be beside the heap, 0.5 with headroom."""
    held = replace(A_SIZE, overhead_bytes=4 * GIB)
    decision = decision_on(held, memory_used_bytes=4.0 * GIB)
    assert decision.after.overhead_bytes == 512 * MIB


def test_no_scale_down_in_a_window_with_a_kill():
    held, kills = replace(A_SIZE, overhead_bytes=4 * GIB), [0.0] * 20 + [1.0] + [0.0] * 19
    assert fires_on(held, memory_kill_count=kills) is Rule.NONE
