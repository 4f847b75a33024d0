"""One file per claim; `penstock bench NAME` measures both sides in one run."""

from __future__ import annotations

BENCHES: dict[str, str] = {
    "decision": "penstock.bench.decision",
    "overhead": "penstock.bench.overhead",
    "simulator": "penstock.bench.simulator",
    "wordcount": "penstock.bench.wordcount",
}
"""Name of a benchmark → the module that exposes `run(quick, progress) -> BenchReport`."""
