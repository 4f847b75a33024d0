"""Ask the diagnosis about made logs, and compare its answer with a rerun of the model without the cause."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.diagnosis import Diagnosis, diagnose_log
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock_lab.experiments.answers.applications import (
    draw_batch_application,
    draw_shell,
    draw_streaming_application,
)
from penstock_lab.experiments.answers.causes import CAUSES, InjectedCause
from penstock_lab.experiments.answers.cluster import play
from penstock_lab.experiments.answers.event_log import write_lines
from penstock_lab.experiments.answers.scene import Scene
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row

SEEDS, QUICK_SEEDS = 4, 1
MIXTURES = (
    ("skew", "gc"), ("spill", "slow driver"), ("gc", "slow shuffle"), ("few partitions", "slow driver"),
    ("slow host", "gc"), ("slow shuffle", "late executors"), ("slow commit", "slow offsets"),
    ("slow log", "slow commit"), ("cold start", "slow commit"), ("failed tasks", "skew"),
    ("idle shell", "skew"), ("idle shell", "gc"),
)  # fmt: skip
_DRAW = {
    "batch": draw_batch_application,
    "streaming": draw_streaming_application,
    "shell": draw_shell,
}
# The answer tells of these before it says what held up the rest, whatever they cost.
COMES_FIRST = ("failed tasks", "failed job", "lost executors")
TOLD_APART = ("idle shell", "cold start")


@dataclass(frozen=True, slots=True)
class MadeApplication:
    """A made application with its causes."""

    causes: tuple[InjectedCause, ...]
    seed: int

    @property
    def name(self) -> str:
        """The causes, and the seed that decides the rest."""
        return f"{' + '.join(cause.name for cause in self.causes)}, {self.seed}"

    def build_scene(self, without: InjectedCause | None = None) -> Scene:
        """Return the application with all of its causes but one."""
        kinds = {cause.kind for cause in self.causes} - {"batch"}
        scene = _DRAW[next(iter(kinds), "batch")](self.seed)
        for cause in self.causes:
            scene = cause.prepare(scene, self._draw(cause, 1))
        for cause in self.causes:
            if cause is not without:
                scene = cause.inject(scene, self._draw(cause, 2))
        return scene

    def _draw(self, cause: InjectedCause, use: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(cause.name.encode()), use])


def list_cases(seeds: Sequence[int]) -> list[MadeApplication]:
    """Return a case for each cause and each mixture, with each of these seeds; of mixtures fewer."""
    single = [MadeApplication((cause,), seed) for cause in CAUSES.values() for seed in seeds]
    mixed = [
        MadeApplication(tuple(CAUSES[name] for name in names), 100 + seed)
        for names in MIXTURES
        for seed in seeds[: max(1, len(seeds) - 2)]
    ]
    return [*single, *mixed]


def run_case(case: MadeApplication) -> Row:
    """Make the log, diagnose it, and compare."""
    history = play(case.build_scene(), case.seed)
    gains = {
        cause: history.ended - play(case.build_scene(cause), case.seed + 1000).ended for cause in case.causes
    }
    cause = choose_first(gains)
    found = diagnose_log(read_log(write_lines(history)), Span())
    told, predicted = read_first(found, cause)
    known = None if cause.name == "failed job" else gains[cause]
    error = None if known is None or predicted is None else abs(predicted - known) / max(known, 1e-3)
    return {
        "case": case.name,
        "cause": cause.name,
        "told": told,
        "right": told in cause.told_as,
        "seconds": history.ended,
        "gain_s": known,
        "predicted_s": predicted,
        "error": error,
        "tasks": len(history.tasks),
    }


def choose_first(gains: dict[InjectedCause, float]) -> InjectedCause:
    """Return the cause that must be told first: what failed, then what costs most of the time that stays."""
    for cause in gains:
        if cause.name in COMES_FIRST:
            return cause
    stays = {cause: gain for cause, gain in gains.items() if cause.name not in TOLD_APART}
    return max(stays or gains, key=lambda cause: gains[cause])


def read_first(found: Diagnosis, cause: InjectedCause) -> tuple[str, float | None]:
    """Return what the answer tells first, and the seconds that it predicts for it."""
    if found.failed:
        return "failures", found.failed.gain.seconds if found.failed.gain else None
    if found.idle and (cause.name == "idle shell" or "idle" in cause.told_as):
        return "idle", found.idle.seconds
    if not found.findings:
        return "nothing", None
    first = found.findings[0]
    return (first.cause if first.cause in cause.told_as else first.kind), first.gain_seconds


def summarise_cases(rows: Sequence[Row]) -> dict[str, float]:
    """Return the share of right answers, and the errors of gains; a wrong answer has no gain to compare."""
    errors = [row["error"] for row in rows if row["right"] and row["error"] is not None]
    asked = [row for row in rows if row["gain_s"] is not None]
    return {
        "logs": float(len(rows)),
        "right_share": float(np.mean([row["right"] for row in rows])),
        "median_error": float(np.median(errors)) if errors else float("nan"),
        "worst_tenth_error": float(np.quantile(errors, 0.9)) if errors else float("nan"),
        "predicted_share": float(np.mean([row["predicted_s"] is not None for row in asked])),
    }


def run(extent: Extent, progress: Progress) -> Measurement:
    """Ask about every case."""
    rows = list(_run_cases(list_cases(range(QUICK_SEEDS if extent.quick else SEEDS)), progress))
    notes = [
        "The logs are made by a model of a cluster of its own, which shares nothing with the replay; the "
        "gain is the model's time with the cause less its time without, with other chance.",
        "In a mixture, what failed must be told first, then the cause whose removal saves most.",
    ]
    return Measurement(rows, summarise_cases(rows), notes)


def _run_cases(cases: Sequence[MadeApplication], progress: Progress) -> Iterator[Row]:
    for place, case in enumerate(cases):
        progress(f"{place + 1} of {len(cases)}: {case.name}")
        yield run_case(case)
