"""How an application stands, at a glance: one word with its reason, and the figures of its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.journal.report import hold_usage, price_holding
from penstock.journal.terms import Terms, parse_terms
from penstock.runtime.pace import count_backlog_seconds, count_executors_needed, last_point, tell_behind
from penstock.runtime.status import describe_mode
from penstock.view import figures
from penstock.view.dashboard.board import Seen
from penstock.view.words import describe_action_in_flight

Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """A word for how an application stands, and why."""

    word: str
    why: str = ""

    @property
    def key(self) -> str:
        """The word as a class of styles."""
        return self.word.replace(" ", "-")


def judge_state(seen: Seen) -> ApplicationState:
    """Say in one word how an application stands; the first that applies of what matters most."""
    status = seen.status
    if seen.ended:
        return ApplicationState("ended", f"last seen at {figures.clock(seen.at)}")
    if (silent := _tell_silence(seen)) is not None:
        return ApplicationState("no heartbeat", silent)
    if status.get("paused"):
        return ApplicationState("paused", str(status.get("pause_reason") or ""))
    if status.get("error"):
        return ApplicationState("stepped aside", str(status["error"]))
    if not status.get("recent"):
        return ApplicationState("starting", "no batch was seen yet")
    return _judge_pace(status)


def _tell_silence(seen: Seen) -> str | None:
    heart = seen.status.get("heartbeat") or {}
    if seen.trouble is None and heart.get("hangs"):
        return f"silent for {figures.seconds(heart.get('silent_seconds'))}"
    return seen.trouble


def _judge_pace(status: Plain) -> ApplicationState:
    behind = tell_behind(status)
    if status.get("action_in_flight"):
        return ApplicationState("behind" if behind else "keeps up", describe_action_in_flight(status))
    obstacle = _find_obstacle(status)
    if obstacle is not None:
        return ApplicationState("held back", obstacle)
    return ApplicationState("behind", behind) if behind else ApplicationState("keeps up")


def _find_obstacle(status: Plain) -> str | None:
    """Say what keeps the autopilot from the size that it asks for."""
    needed, held = count_executors_needed(status), status.get("executors")
    if needed is None or held is None or needed <= held:
        return None
    most = (status.get("bounds") or {}).get("most")
    if most is not None and needed > most and held >= most:
        return f"needs {figures.count(needed)} executors, {figures.count(most)} are allowed"
    latest = status.get("last_decision") or {}
    return str(latest.get("reason")) if latest.get("kind") in ("rejected", "wait") else None


@dataclass(frozen=True, slots=True)
class ApplicationRow:
    """An application in the table, every figure written out."""

    key: str
    name: str
    note: str
    state: ApplicationState
    rate: str
    offered: str
    backlog: str
    backlog_seconds: str
    latency: str
    batch: str
    period: str
    held: str
    sizes: str
    cost: str
    saved: str
    address: str


def make_row(seen: Seen, address: str) -> ApplicationRow:
    """Write one application's row."""
    status, last = seen.status, last_point(seen.status)
    waiting = count_backlog_seconds(last)
    period = last.get("period_seconds")
    used, saved = describe_cost(status.get("usage") or {}, parse_terms(status.get("terms") or {}))
    return ApplicationRow(
        key=seen.key,
        name=seen.name,
        note=_describe(seen),
        state=judge_state(seen),
        rate=figures.rate(last.get("observed_per_second")),
        offered=f"of {figures.rate(last.get('offered_per_second'))}",
        backlog=figures.count(last.get("backlog_records")),
        backlog_seconds=figures.seconds(waiting) if waiting else "",
        latency=figures.seconds(find_latency(status)),
        batch=figures.seconds(last.get("batch_seconds")),
        period=f"every {figures.seconds(period)}" if period else "",
        held=figures.count(status.get("executors")),
        sizes=_describe_sizes(status),
        cost=used,
        saved=saved,
        address=address,
    )


def find_latency(status: Plain) -> float | None:
    """Return the end-to-end latency of the slowest query that measures one."""
    known = [query.get("latency_seconds") for query in status.get("queries", ())]
    return max((one for one in known if one is not None), default=None)


def describe_cost(usage: Plain, terms: Terms) -> tuple[str, str]:
    """Say what was held so far, and against holding the peak, and the first size, all along.

    It is money where a price is set, else executor-hours, or slot-hours where only these are known.
    """
    if (usage.get("seconds") or 0.0) <= 0 or (usage.get("slot_seconds") or 0.0) <= 0:
        return figures.ABSENT, ""
    unit = "executor" if usage.get("executor_seconds") else "slot"
    pairs = {against: _compare_cost(usage, terms, unit, against) for against in ("peak", "start")}
    compared = [f"{_write_change(*pair)} to {against}" for against, pair in pairs.items() if pair[1] > 0]
    held, _ = pairs["peak"]
    return figures.money(held) if terms.has_price else f"{held:,.2f} {unit}-h", ", ".join(compared)


def _compare_cost(usage: Plain, terms: Terms, unit: str, against: str) -> tuple[float, float]:
    """Return what was held, and what that size all along would have been: in money, else in hours."""
    cost = price_holding(hold_usage(usage, terms, against), terms)
    if cost is not None:
        return cost.held, cost.peak
    return usage[f"{unit}_seconds"] / 3600, usage[f"{unit}s_at_{against}"] * usage["seconds"] / 3600


def _write_change(held: float, against: float) -> str:
    change = held / against - 1
    return "±0 %" if abs(change) < 0.005 else f"{change:+.0%}".replace("%", " %").replace("-", "−")


def _describe(seen: Seen) -> str:
    status = seen.status
    parts = (seen.application, status.get("policy"), describe_mode(status) if status else "")
    return " · ".join(str(part) for part in parts if part)


def _describe_sizes(status: Plain) -> str:
    needed, bounds = count_executors_needed(status), status.get("bounds") or {}
    allowed = f"{bounds['least']}–{bounds['most']} allowed" if bounds else ""
    asked = f"{figures.count(needed)} needed" if needed is not None else ""
    return ", ".join(part for part in (asked, allowed) if part)
