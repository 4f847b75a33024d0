"""The contract of every policy, whoever wrote it: never raise, change only what is held, say why."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, SourceRate
from penstock.decide.manager.proposals import object_to_proposal
from penstock.decide.policy import Hold, Learner, Policy, Scale
from penstock.plugins.windows import WindowMaker, on_operators, on_slots, spoil, tell_stories, with_sources
from penstock.settings.model import Settings
from penstock.units.texts import LONGEST_SHOWN, cut_text

WINDOWS: tuple[WindowMaker, ...] = (on_operators, on_slots)
SETTINGS = (Settings(), Settings(latency_target=2.0), Settings(latency_target=0.01, max_executors=4))
GARBAGE: tuple[object, ...] = ({}, {"points": None}, None, 3, "text", [[1]])
"""Memories that no policy wrote, as a journal of another version may hold them."""

MakePolicy = Callable[[Settings], Policy]
Check = Callable[[MakePolicy], None]


class ContractBroken(Exception):
    """A policy that does not keep its contract; the text says which answer to what."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of the contract, and the problem that it found, empty where the policy keeps it."""

    check: str
    problem: str = ""


def check_policy(make: MakePolicy) -> tuple[CheckResult, ...]:
    """Run the whole contract on a policy; an exception of the policy is a problem, never an error here."""
    return tuple(_run_check(name, check, make) for name, check in CHECKS.items())


def _run_check(name: str, check: Check, make: MakePolicy) -> CheckResult:
    try:
        check(make)
    except ContractBroken as broken:
        return CheckResult(name, str(broken))
    except Exception as error:
        told = cut_text(" ".join(str(error).split()), LONGEST_SHOWN)
        return CheckResult(name, f"it raised {type(error).__name__}: {told}")
    return CheckResult(name)


def check_answer(answer: object, window: ApplicationWindow) -> None:
    """Check what holds of every answer to any window."""
    if not isinstance(answer, NotReady | Hold | Scale):
        raise ContractBroken(f"answered {answer!r:.100}, which is no NotReady, Hold or Scale")
    _expect(bool(answer.reason.strip()), "gave an answer without a reason")
    if isinstance(answer, NotReady):
        return
    _expect(not re.search(r"\b(nan|inf)\b", answer.reason), f"gave no number as a reason: {answer.reason}")
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    _expect(all(map(math.isfinite, figures.values())), f"gave figures that are not finite: {dict(figures)}")
    if isinstance(answer, Scale):
        _check_sizes(answer, window.parallelism)


def _check_sizes(answer: Scale, held: Mapping[str, int]) -> None:
    sizes = answer.parallelism
    _expect(set(sizes) <= set(held), f"sized {sorted(set(sizes) - set(held))}, which is not held")
    whole = all(isinstance(size, int) and size >= 1 for size in sizes.values())
    _expect(whole, f"asked for sizes that are no whole numbers of at least 1: {dict(sizes)}")
    _expect(any(size != held[unit] for unit, size in sizes.items()), "asked for the size that is held")
    _expect(bool(answer.expected.summary), "expects nothing of a change")
    refused = object_to_proposal(answer, held)
    _expect(refused is None, refused.reason if refused else "")


def _expect(kept: bool, problem: str) -> None:
    if not kept:
        raise ContractBroken(problem)


def _every_kind() -> Iterator[tuple[WindowMaker, Settings]]:
    return ((window_of, settings) for window_of in WINDOWS for settings in SETTINGS)


def check_name(make: MakePolicy) -> None:
    """Two policies that are made alike have the same name, which is a word."""
    name = make(SETTINGS[0]).name
    _expect(isinstance(name, str) and bool(name.strip()), f"its name is {name!r}")
    _expect(make(SETTINGS[0]).name == name, "its name changes")


def check_answers(make: MakePolicy) -> None:
    """Ordinary windows get well-formed answers."""
    for window_of, settings in _every_kind():
        policy = make(settings)
        for window in tell_stories(window_of):
            check_answer(policy.propose(window), window)


def check_same_answers(make: MakePolicy) -> None:
    """The same windows get the same answers: no clock, no chance, nothing from outside."""
    for window_of, settings in _every_kind():
        windows = tell_stories(window_of)
        one, other = make(settings), make(settings)
        for window in windows:
            first, second = one.propose(window), other.propose(window)
            _expect(first == second, f"answered the same window with {first!r:.80} and {second!r:.80}")


def check_hostile_windows(make: MakePolicy) -> None:
    """Windows with anything wrong never make it raise, nor change what is not held."""
    for window_of, settings in _every_kind():
        for window in spoil(window_of()):
            check_answer(make(settings).propose(window), window)


def check_recovery(make: MakePolicy) -> None:
    """A hostile window does not spoil the answer to the next one."""
    for window_of, settings in _every_kind():
        policy = make(settings)
        for window in spoil(window_of()):
            policy.propose(window)
        after = window_of(30.0)
        check_answer(policy.propose(after), after)


def check_unknown_rate(make: MakePolicy) -> None:
    """An unknown offered rate is no ground for a change."""
    unknown = SourceRate(math.nan, math.nan, math.nan)
    for window_of, settings in _every_kind():
        answer = make(settings).propose(with_sources(window_of(), unknown))
        _expect(not isinstance(answer, Scale), f"changes a size without a known rate: {answer!r:.100}")


def check_memory(make: MakePolicy) -> None:
    """Check that a policy keeps what it learned as plain data for its next run, and survives garbage."""
    for window_of in WINDOWS:
        policy = make(SETTINGS[0])
        if not isinstance(policy, Learner):
            return
        for window in tell_stories(window_of):
            policy.propose(window)
        kept, fresh = json.loads(json.dumps(policy.learned())), make(SETTINGS[0])
        assert isinstance(fresh, Learner)
        left = fresh.recall(kept)
        _expect(not left, f"cannot use what it has learned itself: {left!r:.100}")
        for key in kept or {"nobody": {}}:
            for garbage in GARBAGE:
                make_learner = make(SETTINGS[0])
                assert isinstance(make_learner, Learner)
                make_learner.recall({key: garbage})  # type: ignore[dict-item]
                check_answer(make_learner.propose(window_of()), window_of())


CHECKS: Mapping[str, Check] = {
    "it has one name": check_name,
    "its answers are well formed": check_answers,
    "the same windows get the same answers": check_same_answers,
    "no window makes it raise or change what is not held": check_hostile_windows,
    "a bad window does not spoil the next": check_recovery,
    "an unknown rate is no ground for a change": check_unknown_rate,
    "what it learns is plain data and may be garbage": check_memory,
}
"""The contract, check by check."""
