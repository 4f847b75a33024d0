"""All experiments with the claims over their rows, in the order in which the report runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from penstock.errors import BadInput
from penstock.units.fields import suggest_name
from penstock_lab.report.runner import ReportPart

OWN = "targets of Penstock"
PULSAR = "Elastic Pulsar Functions, figures 5 to 8"


class Later:
    """A function of the laboratory that is imported when it is called."""

    def __init__(self, reference: str) -> None:
        self._reference = f"penstock_lab.{reference}"

    def resolve(self) -> Callable[..., Any]:
        """Import the function."""
        found: Callable[..., Any] = resolve_name(self._reference)
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.resolve()(*arguments)


def _part(
    name: str,
    title: str,
    shows: str,
    seconds: tuple[float | None, float],
    work: str,
    claims: str,
    **more: Any,
) -> ReportPart:
    """Describe a part; its modules are imported when it runs, since many of them import Spark."""
    measure, judge = Later(f"experiments.{work}"), Later(f"claims.{claims}")
    return ReportPart(name, title, shows, measure, judge, *seconds, **more)


# fmt: off
PARTS: tuple[ReportPart, ...] = (
    _part("heron", "DS2 against Dhalion on the word count, simulated", "DS2, figures 1 and 6",
          (2, 2), "simulated:run_heron", "ds2.simulated:judge_heron"),
    _part("two-phases", "DS2 when the rate changes, simulated", "DS2, figure 7",
          (1, 1), "simulated:run_two_phases", "ds2.simulated:judge_two_phases"),
    _part("convergence", "Convergence from six initial sizes, simulated", "DS2, table 4",
          (1, 3), "simulated:run_convergence", "ds2.simulated:judge_convergence"),
    _part("accuracy", "The chosen size, one smaller, one larger, simulated", "DS2, figure 8",
          (1, 1), "simulated:run_accuracy", "ds2.simulated:judge_accuracy"),
    _part("skew", "DS2 with a skew of 20, 50 and 70 %, simulated", "DS2, section 4.2.3",
          (1, 1), "simulated:run_skew", "ds2.simulated:judge_skew"),
    _part("image-pipeline", "Policies on the image pipeline, simulated", PULSAR,
          (1, 1), "simulated:run_images", "pulsar:judge_simulated"),
    _part("autrascale-latency", "AuTraScale's instances and latency, simulated",
          "AuTraScale, tables II and III",
          (3, 10), "simulated:run_latency_targets", "autrascale:judge_latency_targets"),
    _part("autrascale-rates", "What AuTraScale learned at one rate, used at the next, simulated",
          "AuTraScale, figure 8",
          (3, 8), "simulated:run_other_rates", "autrascale:judge_other_rates"),
    _part("decision", "How long one DS2 evaluation takes, and how that grows with the graph", OWN,
          (2, 10), "kernels:run_decision", "penstock:judge_decision", bench="decision"),
    _part("autrascale-cost", "Processor time of AuTraScale's algorithms", "AuTraScale, table IV",
          (3, 20), "kernels:run_autrascale", "autrascale:judge_cost", bench="autrascale"),
    _part("event-log", "From a large event log to the report, in megabytes and tasks a second", OWN,
          (15, 60), "event_log:run_event_log", "penstock:judge_event_log", bench="event-log"),
    _part("answers", "What diagnosis says of made logs whose cause is known, and of its cost",
          OWN, (20, 90), "answers.trials:run", "penstock:judge_answers", bench="answers"),
    _part("diagnosis-tables", "Latency and throughput of the diagnosis", "Snailtrail, tables 3.3 and 3.4",
          (8, 45), "diagnosis_speed:run_critical_path", "snailtrail:judge_tables", bench="critical-path"),
    _part("simulator", "How many hours the simulator simulates in a second", OWN,
          (10, 300), "simulator:run", "penstock:judge_simulator", bench="simulator"),
    _part("dashboard", "The dashboard: first paint, delay, processor time; what a watched driver pays", OWN,
          (170, 620), "dashboard:run", "penstock:judge_dashboard", bench="dashboard", needs=("selenium",)),
    _part("policies", "All policies side by side, simulated", f"{OWN}; AuTraScale, tables II and III",
          (None, 1500), "policies:run", "penstock:judge_policies", bench="policies"),
    _part("days", "Made and recorded days, simulated: policies, rivals and the causal bound", OWN,
          (None, 2700), "days.trials:run", "days:judge_days", bench="days"),
    _part("word-count", "DS2 against Spark's dynamic allocation on a real cluster",
          "DS2, figures 1, 6, 7 and 8",
          (190, 1690), "word_count.query:run", "ds2.word_count:judge", bench="wordcount"),
    _part("field", "Ordinary jobs with all defaults, on hosts with real limits", OWN,
          (None, 3600), "field.trials:run", "field:judge_field", bench="field"),
    _part("autrascale-cluster", "AuTraScale's search and transfer on hosts with real limits",
          "AuTraScale, tables II and III, figure 8",
          (None, 1500), "autrascale_live:run", "autrascale:judge_live", bench="autrascale-live"),
    _part("faults", "Every fault meets every part, or cannot", OWN,
          (None, 9000), "faults.trials:run", "faults:judge_faults", bench="faults"),
    _part("word-count-functions", "DS2 against Dhalion on a real cluster", "DS2, figures 1 and 6",
          (None, 560), "word_count.functions:run", "ds2.functions:judge", bench="wordcount-functions"),
    _part("overhead", "What watching costs", "DS2, figure 10",
          (None, 530), "overhead:run", "ds2.word_count:judge_overhead", bench="overhead"),
    _part("migration", "State that moves while the key-count runs", "Megaphone, figures 5.1 and 5.15 to 5.19",
          (80, 820), "moving.key_count:run", "megaphone:judge_key_count", bench="migration"),
    _part("migration-queries", "State that moves while Nexmark queries 3 to 8 run",
          "Megaphone, figures 5.6 to 5.11",
          (60, 680), "moving.queries:run", "megaphone:judge_nexmark", bench="nexmark-migration"),
    _part("bottlenecks", "The operator to scale and the driver, as diagnosis finds them",
          "Snailtrail, figures 3.1, 3.8 and 3.11",
          (45, 80), "diagnosing:run_causes", "snailtrail:judge_causes", bench="bottlenecks"),
    _part("hot-keys", "Skew on a real cluster: what diagnosis says, what DS2 does, what moving bins brings",
          "Snailtrail, figure 3.10; DS2, section 4.2.3",
          (120, 300), "hot_keys:run", "snailtrail:judge_hot_keys", bench="skew"),
    _part("what-if", "Batch times that a replay predicts, against those of a cluster of that size", OWN,
          (None, 180), "diagnosing:run_what_if", "penstock:judge_what_if", bench="what-if"),
    _part("image-pipeline-cluster", "Policies on the image pipeline, a real cluster", PULSAR,
          (None, 580), "images.policies:run", "pulsar:judge_cluster", bench="images"),
    _part("image-triggers", "How short the image pipeline's latency can be made", PULSAR,
          (None, 700), "images.triggers:run", "pulsar:judge_triggers",
          bench="image-triggers", needs=("confluent_kafka",)),
    _part("seamless", "How changing one function disturbs another: between batches, and by a restart", OWN,
          (None, 480), "seamless:run", "penstock:judge_seamless", bench="seamless"),
    _part("kafka", "What splitting a query into functions costs, on files and on Kafka", OWN,
          (None, 420), "splitting:run", "penstock:judge_splitting",
          bench="kafka", needs=("confluent_kafka",)),
    _part("convergence-cluster", "Convergence from two initial sizes on a real cluster", "DS2, table 4",
          (None, 1100), "nexmark:run_convergence", "ds2.functions:judge_convergence", bench="convergence"),
    _part("nexmark", "What each Nexmark query sustains on two cores, and its latency", OWN,
          (None, 1500), "nexmark:run", "penstock:judge_nexmark", bench="nexmark"),
    _part("fleet", "How many applications one Spark job judges in a round, how fast, and in how much memory",
          f"{OWN}; Sage",
          (None, 600), "fleet:run", "penstock:judge_fleet", bench="fleet"),
    _part("sizing", "Over-size after Sage's rules", "Sage, evaluation",
          (None, 600), "sizing.trials:run", "sage:judge", bench="sizing"),
)
# fmt: on

BENCHES: dict[str, ReportPart] = {
    part.bench: part for part in sorted(PARTS, key=lambda one: one.bench) if part.bench
}
"""Name of a benchmark → its experiment and claims."""


def choose_parts(names: Sequence[str], parts: Sequence[ReportPart] = PARTS) -> list[ReportPart]:
    """Return the parts of these names, all if none is given."""
    known = {part.name: part for part in parts}
    for name in names:
        if name not in known:
            raise BadInput(f"evidence: there is no part {name!r}{suggest_name(name, known)}")
    return [part for part in parts if not names or part.name in names]


def find_bench(name: str) -> ReportPart:
    """Return the experiment of a benchmark."""
    if name not in BENCHES:
        raise BadInput(f"bench: unknown benchmark {name!r}{suggest_name(name, BENCHES, cutoff=0.4)}")
    return BENCHES[name]
