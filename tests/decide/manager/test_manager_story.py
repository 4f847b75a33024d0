"""The manager over time: one day in the life of an application, and stability under noise."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.window import EXECUTORS
from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import (
    Accepted,
    ManagerSettings,
    NothingToDo,
    Rejected,
    ScalingManager,
    Waiting,
)
from penstock.decide.policy import HELD_UTILISATION, ExpectedEffect, Hold, Scale
from tests.decide.situations import INTERVAL, outcome, window

PER_EXECUTOR = 100.0
"""Records per second that one executor can read."""
CATCH_UP = 600.0


class Application:
    """An application whose backlog obeys its load, a policy that knows its rates, and the manager over it."""

    def __init__(
        self,
        manager_settings: ManagerSettings,
        held: int,
        utilisation: float = 0.8,
        bounds: SizeBounds | None = None,
    ) -> None:
        self.manager = ScalingManager(manager_settings, bounds)
        self.utilisation = utilisation
        self.now = 0.0
        self.held = held
        self.backlog = 0.0
        self.sizes: list[int] = []

    def step(self, offered: float, noise: float = 0.0, answer: Hold | Scale | None = None):
        """One policy interval under this load; an accepted action is done at once."""
        self.now += INTERVAL
        observed = min(offered + self.backlog / INTERVAL, self.held * PER_EXECUTOR)
        self.backlog += (offered - observed) * INTERVAL
        seen = window(self.now, self.held, offered=offered, observed=observed, backlog=self.backlog)
        verdict = self.manager.judge(self.now, seen, answer or self.proposal(offered, noise))
        if isinstance(verdict, Accepted):
            self.perform(verdict.action)
        return verdict

    def steps(self, count: int, offered: float) -> list:
        return [self.step(offered) for _ in range(count)]

    def proposal(self, offered: float, noise: float) -> Hold | Scale:
        """The size that reads what is offered, and the backlog in the catch-up time, with some headroom."""
        busy = (offered + self.backlog / CATCH_UP) * (1 + noise) / PER_EXECUTOR
        exact = busy / self.utilisation
        figures = {HELD_UTILISATION: busy / self.held}
        wanted = max(1, math.ceil(exact))
        if wanted == self.held:
            return Hold("the size is right", figures)
        reason = f"{offered:g} records a second need {wanted}"
        return Scale({EXECUTORS: wanted}, reason, ExpectedEffect("keeps up", figures), {EXECUTORS: exact})

    def perform(self, action: Scale) -> None:
        self.manager.action_started(self.now, action)
        self.manager.action_ended(self.now, action, outcome(action))
        self.held = action.parallelism[EXECUTORS]
        self.sizes.append(self.held)


def kinds(verdicts) -> list[type]:
    return [type(verdict) for verdict in verdicts]


def test_a_day_in_the_life_of_an_application():
    # warm-up 1 interval, activation 2, scale-down delay 60 s, largest step down a half: the defaults
    app = Application(ManagerSettings(), held=4)

    # under-provisioned: 400 of 800 records a second are read; one step reaches what is needed
    warm_up, first, second = app.steps(3, 800.0)
    assert isinstance(warm_up, Waiting)
    assert "warming up" in warm_up.reason
    assert isinstance(first, Waiting)
    assert "1 of 2 decisions" in first.reason
    assert isinstance(second, Accepted)
    assert "800 records a second need" in second.action.reason
    # 800 and a backlog of 12,000 in 600 s are 820 a second, or 10.25 executors at 0.8 each
    assert app.held == 11

    # stable: the rest of the backlog is read, nothing changes
    assert kinds(app.steps(1, 800.0)) == [Waiting]
    settled = app.steps(20, 800.0)
    assert set(kinds(settled)) <= {NothingToDo, Rejected}
    assert app.backlog == 0
    assert app.sizes == [11]

    # the load falls to 300: 4 executors would do; for 60 s nothing is taken, then at most a half
    falling = app.steps(8, 300.0)
    early = [verdict for verdict in falling[1:6] if isinstance(verdict, Rejected)]
    assert {verdict.guardrail for verdict in early} == {"scale-down-delay"}
    assert "for 60 s" in early[0].reason
    accepted = [verdict for verdict in falling if isinstance(verdict, Accepted)]
    assert len(accepted) == 1
    assert any("at most 50%" in note for note in accepted[0].notes)
    assert app.sizes == [11, 6]

    # the second step of the same descent must wait as long again
    app.steps(10, 300.0)
    assert app.sizes == [11, 6, 4]

    # a dip of two intervals changes nothing
    app.steps(3, 300.0)
    dip = app.steps(2, 100.0)
    assert not any(isinstance(verdict, Accepted) for verdict in dip)

    # a spike: within two decisions it grows again, in one step
    assert kinds(app.steps(2, 900.0))[-1] is Accepted
    assert app.held >= 12
    app.steps(30, 900.0)
    assert app.backlog == 0
    assert len(app.sizes) == 4


def test_the_same_history_gets_the_same_verdicts():
    loads = [800.0] * 6 + [300.0] * 12 + [1200.0] * 6
    one, other = (Application(ManagerSettings(), held=2) for _ in range(2))
    assert [one.step(load) for load in loads] == [other.step(load) for load in loads]
    assert one.manager.state == other.manager.state


NOISE = st.lists(st.floats(min_value=-0.1, max_value=0.1), min_size=30, max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(min_value=1, max_value=16),
    offered=st.floats(min_value=50.0, max_value=4000.0),
    noise=NOISE,
    activation=st.integers(min_value=1, max_value=3),
)
def test_under_constant_load_the_direction_never_flips_after_settling(start, offered, noise, activation):
    app = Application(ManagerSettings(activation_intervals=activation), held=start)
    # without noise it settles: four halvings of eight intervals each take it from 16 down to anything
    app.steps(40, offered)
    app.sizes = [app.held]
    for one in noise:
        app.step(offered, one)
    changes = [later - earlier for earlier, later in zip(app.sizes, app.sizes[1:], strict=False)]
    assert all(change > 0 for change in changes) or all(change < 0 for change in changes)
    assert app.held * PER_EXECUTOR >= offered * 0.999


PROPOSED = st.one_of(st.integers(min_value=1, max_value=300), st.none())


@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(min_value=3, max_value=40),
    fraction=st.floats(min_value=0.05, max_value=1.0),
    asked=st.lists(st.tuples(PROPOSED, st.floats(min_value=1.0, max_value=9000.0)), max_size=40),
)
def test_bounds_and_steps_are_respected_whatever_is_asked(start, fraction, asked):
    limits = ManagerSettings(
        warm_up_intervals=0,
        activation_intervals=1,
        scale_down_delay=0.0,
        largest_step_down=fraction,
        rollback=False,
    )
    app = Application(limits, held=start, bounds=SizeBounds(least=3, most=40))
    for wanted, offered in asked:
        held = app.held
        change = Scale({EXECUTORS: wanted}, "asked", ExpectedEffect("")) if wanted else Hold("asked")
        app.step(offered, answer=change)
        assert 3 <= app.held <= 40
        assert held - app.held <= max(1, held * fraction)
