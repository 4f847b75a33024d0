"""One file per claim; `penstock bench NAME` measures both sides in one run."""

from __future__ import annotations

BENCHES: dict[str, str] = {
    "autrascale": "penstock.bench.autrascale",
    "bottlenecks": "penstock.bench.bottlenecks",
    "convergence": "penstock.bench.convergence",
    "critical-path": "penstock.bench.critical_path",
    "decision": "penstock.bench.decision",
    "event-log": "penstock.bench.event_log",
    "fleet": "penstock.bench.fleet",
    "images": "penstock.bench.images",
    "kafka": "penstock.bench.kafka",
    "migration": "penstock.bench.migration",
    "nexmark": "penstock.bench.nexmark",
    "nexmark-migration": "penstock.bench.nexmark_migration",
    "overhead": "penstock.bench.overhead",
    "policies": "penstock.bench.policies",
    "seamless": "penstock.bench.seamless",
    "simulator": "penstock.bench.simulator",
    "sizing": "penstock.bench.sizing",
    "skew": "penstock.bench.skew",
    "what-if": "penstock.bench.what_if",
    "wordcount": "penstock.bench.wordcount",
    "wordcount-functions": "penstock.bench.wordcount_functions",
}
"""Name of a benchmark → the module that exposes `run(quick, progress) -> BenchReport`."""
