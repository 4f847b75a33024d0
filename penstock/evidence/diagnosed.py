"""What diagnosis finds: hot keys and stragglers, the operator to scale, the driver; and how fast it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.bench.report import Row
from penstock.evidence.findings import Chart, Finding, PartResult, agreed, incomparable, judged, unmeasured

if TYPE_CHECKING:
    from penstock.bench.bottlenecks import Case
    from penstock.bench.skew_rows import Skewed

Progress = Callable[[str], None]

TABLE_3_3 = {1: 0.06, 2: 0.14, 4: 0.29, 8: 0.62, 16: 1.40, 32: 2.93, 64: 5.91, 128: 13.16, 256: 24.84}
TABLE_3_4 = {1: 1.2, 2: 1.2, 4: 1.2, 8: 1.1, 16: 1.1, 32: 1.0, 64: 0.8, 128: 0.5, 256: 0.4}
"""Snailtrail: length of a snapshot in seconds → latency in seconds, and million events a second."""
STRAGGLER_SHARES = (0.3, 0.5, 0.8)
REMEDY_SHARES = (0.2, 0.5, 0.7)
HOT = "real cluster of four slots, paced state of 16 bins, one key that becomes hot"
MADE = "real cluster of four slots, a cause that was made, read from the event log"


def diagnosis_tables(quick: bool, progress: Progress) -> PartResult:
    """Tables 3.3 and 3.4: latency of a snapshot's analysis, and throughput."""
    from penstock.bench.critical_path import kernel_rows

    rows, notes = kernel_rows(quick, progress)
    return tables(rows, notes)


def tables(rows: Sequence[Row], notes: Sequence[str]) -> PartResult:
    """The benchmark's rows beside both tables."""
    conditions = (
        "generated traces of 30 thousand events a second, one core, from ordered events in memory to "
        "participation, the best of three; published: 32 cores, events as they come"
    )
    known = {row["window_s"]: row for row in rows if row["window_s"] in TABLE_3_3}
    findings = [
        judged(
            f"latency of a snapshot of {seconds} s, in s (table 3.3)",
            TABLE_3_3[seconds],
            row["latency_s"],
            conditions=conditions,
        )
        for seconds, row in known.items()
    ]
    findings += [
        judged(
            f"million events a second, snapshots of {seconds} s (table 3.4)",
            TABLE_3_4[seconds],
            row["events_per_s"] / 1e6,
            lower_is_better=False,
            conditions=conditions,
        )
        for seconds, row in known.items()
    ]
    latencies = {seconds: row["latency_s"] for seconds, row in known.items()}
    rates = {seconds: row["events_per_s"] / 1e6 for seconds, row in known.items()}
    charts = [
        _beside("table 3.3", "latency, s", TABLE_3_3, latencies),
        _beside("table 3.4", "million events a second", TABLE_3_4, rates),
    ]
    return PartResult(findings, charts, notes)


def _beside(title: str, y: str, published: Mapping[int, float], ours: Mapping[int, float]) -> Chart:
    """A published row of figures by the length of snapshots, and ours."""
    lines = [
        (name, [float(seconds) for seconds in by], list(by.values()))
        for name, by in (("published", published), ("ours", ours))
    ]
    return Chart(title, "snapshot, s", y, lines, points=True, logarithmic="xy")


def hot_keys(quick: bool, progress: Progress) -> PartResult:
    """Figure 3.10 and skew of 20, 50 and 70 %: what diagnosis says, what DS2 asks for, what moving brings."""
    from penstock.bench.skew import Effort, measured

    remedied = (0.5,) if quick else REMEDY_SHARES
    short = Effort(even_batches=2, batches=2, move=False)
    moved = Effort(even_batches=3, batches=3) if quick else Effort()
    shares = sorted({*STRAGGLER_SHARES, *remedied})
    found, failures = measured({share: moved if share in remedied else short for share in shares}, progress)
    findings = [straggler(one) for one in found if one.share in STRAGGLER_SHARES]
    for one in found:
        if one.share in remedied:
            findings += [what_ds2_does(one), what_moving_brings(one)]
    findings += unmeasured(failures, len(found), HOT)
    notes = [one.note() for one in found]
    return PartResult(findings, [participations(found), *hot_timelines(found)], notes)


def straggler(one: Skewed) -> Finding:
    """Whether the hot bin's task was named."""
    times = None if one.times_median is None else f"{one.times_median:.1f} times the median task"
    named = f"named, {times}" if times else "named"
    ours = named if one.straggler_found else f"not named: {one.answer}"
    name = f"straggler at {one.share:.0%} (figure 3.10)"
    beside = f"Spark's times of tasks: the slowest {times}" if times else None
    return agreed(name, "found", ours, one.straggler_found, baseline=beside, conditions=HOT)


def what_ds2_does(one: Skewed) -> Finding:
    """DS2's paper: it stays at the size that fits without skew. Here a guardrail sees to that."""
    name, claim = f"skew of {one.share:.0%}: what DS2 does", "stays at the size that fits without skew"
    if not one.ds2_answered:
        return incomparable(name, claim, f"no answer: {one.ds2}", "it was not measured", conditions=HOT)
    asks = one.ds2_executors
    grows = asks is not None and asks > one.executors
    ours = f"holds {one.executors} executors: {one.ds2}" if asks is None else f"asks for {asks} executors"
    ours += f"; growth is vetoed: {one.veto}" if grows and one.veto else ""
    stays = not grows or bool(one.veto)
    return agreed(name, claim, ours, stays, conditions=HOT)


def what_moving_brings(one: Skewed) -> Finding:
    """Batch time before and after the neighbours of the hot bin went elsewhere."""
    row = one.row()
    before, after, name = (
        row["skewed_batch_s"],
        row["settled_batch_s"],
        f"skew of {one.share:.0%}: moving bins",
    )
    if after is None:
        ours = "nothing was worth a move" if not one.bins_moved else "no batch was seen after the moves"
    else:
        way = "less" if row["gain"] >= 0 else "more"
        ours = f"batches of {after:.2f} s after {one.bins_moved} bins moved, {abs(row['gain']):.0%} {way}"
    bound = f"the hot key alone takes {one.hot_seconds:.2f} s, which no placement shortens"
    baseline = f"left alone: {before:.2f} s" if before is not None else None
    why = f"no paper has it; {bound}"
    return incomparable(name, None, ours, why, baseline=baseline, conditions=HOT)


def participations(found: Sequence[Skewed]) -> Chart:
    """What each slot has of the critical path, the largest first (figure 3.10)."""
    bars = []
    for one in found:
        # what lies between two tasks makes slots of no length
        shares = sorted(one.participation.values(), reverse=True)[: one.executors]
        bars.append((one.case, [f"slot {number + 1}" for number in range(len(shares))], shares))
    title = "participation of the slots, the straggler's first (figure 3.10)"
    return Chart(title, "slots by participation", "critical participation", bars, bars=True)


def hot_timelines(found: Sequence[Skewed]) -> list[Chart]:
    """Batch time from even to skewed to settled, with the batches in which bins moved."""
    series = []
    for one in found:
        shown = [*one.even, *one.skewed, *one.moving, *one.settled]
        if one.settled and one.skewed:
            zero = one.skewed[0].start
            times = [round(batch.start - zero, 2) for batch in shown]
            series.append((one.case, times, [batch.seconds for batch in shown]))
    x = "seconds since the first batch shown with a hot key"
    return (
        [Chart("batches before and after bins moved", x, "batch, s", series, points=True)] if series else []
    )


def bottlenecks(quick: bool, progress: Progress) -> PartResult:
    """Figures 3.11, 3.1 and 3.8: the operator to scale, and the driver, by critical participation."""
    from penstock.bench.bottlenecks import DRIVER_CASE, measured

    cases = measured(2 if quick else 6, progress)
    findings = [operator_to_scale(case) for case in cases if case.name != DRIVER_CASE]
    findings += [driver(case) for case in cases if case.name == DRIVER_CASE]
    return PartResult(findings, bottleneck_charts(cases), [f"{case.name}: {case.answer}" for case in cases])


def operator_to_scale(case: Case) -> Finding:
    """Whether the slow operator has the largest participation; the paper slows FlatMap."""
    name = f"{case.name} is slow: operator to scale (figure 3.11)"
    profile = ", ".join(f"{_operator(one)} {share:.0%}" for one, share in case.operator_profile.items())
    beside = f"a conventional profile: {profile}" if profile else None
    claim = "the slow operator is found"
    return agreed(name, claim, case.found, case.named, baseline=beside, conditions=MADE)


def driver(case: Case) -> Finding:
    """The driver bounds the jobs, and participation shows it where a profile does not."""
    share, profile = f"{case.driver_share:.0%}", f"{case.driver_profile:.0%}"
    ours = f"scheduling, barriers and messages: {share} of the critical path, {profile} of the busy seconds"
    agrees = case.named and case.driver_share > case.driver_profile
    claim = "the driver is the bottleneck; participation shows more of it than a profile"
    beside = f"a conventional profile: {profile}"
    name = "many small tasks (figures 3.1 and 3.8)"
    return agreed(name, claim, ours, agrees, baseline=beside, conditions=MADE)


def bottleneck_charts(cases: Sequence[Case]) -> list[Chart]:
    """Participation of operators, and of the driver beside a conventional profile."""
    from penstock.bench.bottlenecks import STAGES

    names = [case.name for case in cases]
    slow = [case for case in cases if case.name in STAGES]
    shares_of = [(f"{case.name} is slow", case.operators) for case in slow]
    shares_of += [(f"{case.name} is slow: conventional profile", case.operator_profile) for case in slow]
    operators = [
        (title, [_operator(name) for name in shares], list(shares.values())) for title, shares in shares_of
    ]
    driver_bars = [
        ("critical participation", names, [case.driver_share for case in cases]),
        ("conventional profile", names, [case.driver_profile for case in cases]),
    ]
    share = "share"
    return [
        Chart("operators by participation (figure 3.11)", "operator", share, operators, bars=True),
        Chart(
            "the driver by case (figures 3.1 and 3.8)", "what was made slow", share, driver_bars, bars=True
        ),
        *(driver_course(case) for case in cases if len(case.snapshots) > 1),
    ]


def driver_course(case: Case) -> Chart:
    """What the driver has of each snapshot, by participation and by a profile."""
    at = [one.at for one in case.snapshots]
    title = f"the driver, snapshot by snapshot: {case.name} (figures 3.1 and 3.8)"
    lines = [
        ("critical participation", at, [one.driver_share for one in case.snapshots]),
        ("conventional profile", at, [one.driver_profile for one in case.snapshots]),
    ]
    return Chart(title, "seconds", "share", lines, steps=True)


def _operator(name: str) -> str:
    """A stage of the word count by what it does; its place among the stages of a batch comes last."""
    stages = {"1": "source and FlatMap", "2": "Count", "3": "totals in state"}
    return stages.get(name.partition(":")[0].rpartition(" ")[2], name)
