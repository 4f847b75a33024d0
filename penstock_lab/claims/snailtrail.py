"""Claims of Snailtrail (thesis, chapter 3): hot keys, the operator to scale, the driver, and speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock_lab.claims.claim import Chart, Claim, Judged, Series, add_conditions
from penstock_lab.experiments.diagnosing import DRIVER_CASE, STAGES, MadeCause, Snapshot
from penstock_lab.experiments.hot_keys import REMEDY_SHARES, STRAGGLER_SHARES, Skewed
from penstock_lab.experiments.measurement import Measurement, Row

TABLE_3_3 = {1: 0.06, 2: 0.14, 4: 0.29, 8: 0.62, 16: 1.40, 32: 2.93, 64: 5.91, 128: 13.16, 256: 24.84}
TABLE_3_4 = {1: 1.2, 2: 1.2, 4: 1.2, 8: 1.1, 16: 1.1, 32: 1.0, 64: 0.8, 128: 0.5, 256: 0.4}
"""Snailtrail: length of a snapshot in seconds → latency in seconds, and million events a second."""
HOT = "real cluster of four slots, paced state of 16 bins, one key that becomes hot"
MADE = "real cluster of four slots, a cause that was made, read from the event log"
TABLES = "Snailtrail, tables 3.3 and 3.4"
"""One claim: throughput is events over latency, so both tables tell one measurement."""
FIGURE_3_10, FIGURE_3_11, DRIVERS = (
    f"Snailtrail, {one}" for one in ("figure 3.10", "figure 3.11", "figures 3.1 and 3.8")
)
SKEW = "DS2, section 4.2.3"
KERNELS = (
    "generated traces of 30 thousand events a second, one core, from events in memory that are in order for "
    "each worker to participation, merge included, the best of three that use the same memory; published: "
    "32 cores, events as they come"
)
PUBLISHED = {
    "events_per_s_32_cores": 1_200_000,
    "latency_s_of_1_s_window": 0.06,
    "latency_s_of_256_s_window": 24.84,
}


def judge_tables(measured: Measurement) -> Judged:
    """Judge tables 3.3 and 3.4: latency of a snapshot's analysis, and throughput."""
    known = [row for row in measured.rows if row["window_s"] in TABLE_3_3]
    latencies = {row["window_s"]: row["latency_s"] for row in known}
    rates = {row["window_s"]: row["events_per_s"] / 1e6 for row in known}
    claims = [
        Claim.judge_figure(
            f"latency of a snapshot of {length} s, in s", TABLE_3_3[length], seconds, figure=TABLES
        )
        for length, seconds in latencies.items()
    ]
    # the report does not send traces through Spark
    through_spark = ("through Spark, events a second on two cores", ">= 5000000", "spark_events_per_s")
    claims += Claim.judge_summary(
        measured.summary,
        *([through_spark] if "spark_events_per_s" in measured.summary else []),
        ("kernel, events a second on one core", ">= 20000000", "kernel_events_per_s_longest"),
        ("latency of a window over its length", "<= 0.1", "worst_latency_of_window"),
        ("growth of time with events (1 is linear)", "<= 1.15", "growth_exponent"),
    )
    charts = [
        _draw_beside("table 3.3", "latency, s", TABLE_3_3, latencies),
        _draw_beside("table 3.4", "million events a second", TABLE_3_4, rates),
    ]
    return Judged(add_conditions(KERNELS, claims), charts, published=PUBLISHED)


def _draw_beside(title: str, y: str, published: Mapping[int, float], ours: Mapping[int, float]) -> Chart:
    """Draw published figures by the length of snapshots, and ours."""
    lines = [
        (name, [float(seconds) for seconds in by], list(by.values()))
        for name, by in (("published", published), ("ours", ours))
    ]
    return Chart(title, "snapshot, s", y, lines, points=True, logarithmic="xy")


def judge_hot_keys(measured: Measurement) -> Judged:
    """Judge figure 3.10 and skew of 20, 50 and 70 %: diagnosis, DS2's answer, and moving bins."""
    found: Sequence[Skewed] = measured.found
    claims = [judge_straggler(one) for one in found if one.share in STRAGGLER_SHARES]
    for one in found:
        if one.share in REMEDY_SHARES:
            claims += [judge_ds2(one), show_moving(one)]
    claims += judge_skew_targets(measured.rows)
    return Judged(add_conditions(HOT, claims), [draw_participations(found), *draw_hot_timelines(found)])


def judge_skew_targets(rows: Sequence[Row]) -> list[Claim]:
    """Judge what diagnosis names and what moving bins brings."""
    missed = sum(not row["straggler_found"] for row in rows)
    gains = [row["gain"] for row in rows if row["gain"] is not None and row["bins_moved"]]
    worse = [row["imbalance_after"] - row["imbalance_before"] for row in rows]
    return [
        Claim.judge_target("stragglers that diagnosis did not name", "== 0", missed),
        Claim.judge_target("gain of moving bins, the least", ">= 0", min(gains, default=None)),
        Claim.judge_target("imbalance after less before, the most", "<= 0", max(worse, default=None)),
    ]


def judge_straggler(one: Skewed) -> Claim:
    """Judge whether the executor of the hot bin has the largest participation in the critical path."""
    largest = f"{one.busiest} with {max(one.participation.values(), default=0.0):.0%} of the critical path"
    ours = largest if one.straggler_found else f"{largest}; the hot bin is on {one.hot_executor}"
    times = (
        "no task far longer than the others"
        if one.times_median is None
        else (f"the slowest task takes {one.times_median:.1f} times the median")
    )
    name, beside = f"straggler at {one.share:.0%}", f"Spark's times of tasks: {times}"
    return Claim.judge_statement(
        name, "found", ours, one.straggler_found, figure=FIGURE_3_10, baseline=beside
    )


def judge_ds2(one: Skewed) -> Claim:
    """Judge that DS2 stays at the size that fits without skew; here a guardrail sees to that."""
    name, claim = f"skew of {one.share:.0%}: what DS2 does", "stays at the size that fits without skew"
    if not one.ds2_answered:
        return Claim.show_beside(name, claim, f"no answer: {one.ds2}", "it was not measured", figure=SKEW)
    asks = one.ds2_executors
    grows = asks is not None and asks > one.executors
    ours = f"holds {one.executors} executors: {one.ds2}" if asks is None else f"asks for {asks} executors"
    ours += f"; growth is vetoed: {one.veto}" if grows and one.veto else ""
    return Claim.judge_statement(name, claim, ours, not grows or bool(one.veto), figure=SKEW)


def show_moving(one: Skewed) -> Claim:
    """Show batch times before and after the neighbours of the hot bin went elsewhere."""
    row = one.make_row()
    before, after = row["skewed_batch_s"], row["settled_batch_s"]
    if after is None:
        ours = "nothing was worth a move" if not one.bins_moved else "no batch was seen after the moves"
    else:
        way = "less" if row["gain"] >= 0 else "more"
        ours = f"batches of {after:.2f} s after {one.bins_moved} bins moved, {abs(row['gain']):.0%} {way}"
    why = f"no paper has it; the hot key alone takes {one.hot_seconds:.2f} s, which no placement shortens"
    baseline = f"left alone: {before:.2f} s" if before is not None else None
    return Claim.show_beside(f"skew of {one.share:.0%}: moving bins", None, ours, why, baseline=baseline)


def draw_participations(found: Sequence[Skewed]) -> Chart:
    """Draw the share of each slot in the critical path, the largest first (figure 3.10)."""
    bars = []
    for one in found:
        # gaps between two tasks make slots of no length
        shares = sorted(one.participation.values(), reverse=True)[: one.executors]
        bars.append((one.case, [f"slot {number + 1}" for number in range(len(shares))], shares))
    title = "participation of the slots, the straggler's first (figure 3.10)"
    return Chart(title, "slots by participation", "critical participation", bars, bars=True)


def draw_hot_timelines(found: Sequence[Skewed]) -> list[Chart]:
    """Draw batch times from even to skewed to settled, with the batches in which bins moved."""
    series = []
    for one in found:
        shown = [*one.even, *one.skewed, *one.moving, *one.settled]
        if one.settled and one.skewed:
            zero = one.skewed[0].start
            times = [round(batch.start - zero, 2) for batch in shown]
            series.append((one.case, times, [batch.seconds for batch in shown]))
    title, x = "batches before and after bins moved", "seconds since the first batch shown with a hot key"
    return [Chart(title, x, "batch, s", series, points=True)] if series else []


def judge_causes(measured: Measurement) -> Judged:
    """Judge figures 3.11, 3.1 and 3.8: the operator to scale, and the driver, by critical participation."""
    causes: Sequence[MadeCause] = measured.found
    claims = [
        *(judge_operator(cause) for cause in causes if cause.name != DRIVER_CASE),
        *(judge_driver(cause) for cause in causes if cause.name == DRIVER_CASE),
        Claim.judge_target(
            "causes that diagnosis did not name", "== 0", sum(not cause.named for cause in causes)
        ),
    ]
    return Judged(add_conditions(MADE, claims), draw_causes(causes))


def judge_operator(case: MadeCause) -> Claim:
    """Judge whether the slow operator has the largest participation; the paper slows FlatMap."""
    name, claim = f"{case.name} is slow: operator to scale", "the slow operator is found"
    profile = ", ".join(f"{_name_operator(one)} {share:.0%}" for one, share in case.operator_profile.items())
    beside = f"a conventional profile: {profile}" if profile else None
    return Claim.judge_statement(name, claim, case.found, case.named, figure=FIGURE_3_11, baseline=beside)


def judge_driver(case: MadeCause) -> Claim:
    """Judge whether the driver bounds the jobs, and participation shows it where a profile does not."""
    share, profile = f"{case.driver_share:.0%}", f"{case.driver_profile:.0%}"
    ours = f"scheduling and barriers: {share} of the critical path, {profile} of the busy seconds"
    agrees = case.named and case.driver_share > case.driver_profile
    claim = "the driver is the bottleneck; participation shows more of it than a profile"
    name, beside = "many small tasks", f"a conventional profile: {profile}"
    return Claim.judge_statement(name, claim, ours, agrees, figure=DRIVERS, baseline=beside)


def draw_causes(cases: Sequence[MadeCause]) -> list[Chart]:
    """Draw the participation of operators, and of the driver beside a conventional profile."""
    slow = [case for case in cases if case.name in STAGES]
    shares_of = [(f"{case.name} is slow", case.operators) for case in slow]
    shares_of += [(f"{case.name} is slow: conventional profile", case.operator_profile) for case in slow]
    operators = [
        (title, [_name_operator(name) for name in shares], list(shares.values()))
        for title, shares in shares_of
    ]
    drivers, driver = (
        _pair_shares([case.name for case in cases], cases),
        "the driver by case (figures 3.1 and 3.8)",
    )
    return [
        Chart("operators by participation (figure 3.11)", "operator", "share", operators, bars=True),
        Chart(driver, "what was made slow", "share", drivers, bars=True),
        *(draw_driver(case) for case in cases if len(case.snapshots) > 1),
    ]


def draw_driver(case: MadeCause) -> Chart:
    """Draw the driver's share of each snapshot, by participation and by a profile."""
    title = f"the driver, snapshot by snapshot: {case.name} (figures 3.1 and 3.8)"
    lines = _pair_shares([one.at for one in case.snapshots], case.snapshots)
    return Chart(title, "seconds", "share", lines, steps=True)


def _pair_shares(x: Sequence[float | str], seen: Sequence[MadeCause] | Sequence[Snapshot]) -> list[Series]:
    """Return the driver's share of the critical path, and of a conventional profile."""
    return [
        ("critical participation", x, [one.driver_share for one in seen]),
        ("conventional profile", x, [one.driver_profile for one in seen]),
    ]


def _name_operator(name: str) -> str:
    """Name a stage of the word count by what it does, from the number at the end of its name."""
    stages = {"1": "source and FlatMap", "2": "Count", "3": "totals in state"}
    return stages.get(name.partition(":")[0].rpartition(" ")[2], name)
