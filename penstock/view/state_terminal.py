"""Where state lies, and what a plan would move, for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from penstock.migrate.repartition import describe_few_bins
from penstock.view import figures
from penstock.view.terminal import make_panel, make_table

HEAVIEST_SHOWN = 12
MOVES_SHOWN = 24
NOWHERE = "–"
AMOUNTS = ("slots", "bins", "rows", "state", "load a batch", "a slot")

Plain = Mapping[str, Any]


def render_state(state: Plain, every_bin: bool = False) -> RenderableType:
    """Show the state of all queries of one application."""
    parts: list[RenderableType] = []
    if state.get("obstacle"):
        parts.append(Text(f"! {state['obstacle']}", style="yellow"))
    for query in state.get("queries", ()):
        parts += [_header(query), _workers(query, state["workers"])]
        parts += [Text(f"\n! {said}", style="yellow") for said in warn_of_few_bins(query, state["workers"])]
        parts.append(_bins(query, every_bin))
    if not state.get("queries"):
        parts.append(Text("no query holds state yet", style="dim"))
    return Group(*parts)


def render_plans(plans: Sequence[Plain]) -> RenderableType:
    """Show what would move, from where to where, and what it brings."""
    if not plans:
        return Text("nothing has to move: the state lies as it should")
    return Group(*(part for plan in plans for part in (_plan_header(plan), _moves(plan))))


def group_by_worker(query: Plain, workers: Sequence[Plain]) -> list[dict[str, Any]]:
    """Add up what each worker holds of a query: bins, rows, bytes and load; unknown places come last."""
    known = {str(worker["worker"]): worker for worker in workers}
    places = dict.fromkeys([*known, *(str(one["worker"] or NOWHERE) for one in query["bins"])])
    held = []
    for worker in places:
        mine = [one for one in query["bins"] if str(one["worker"] or NOWHERE) == worker]
        slots = int(known[worker]["slots"]) if worker in known else None
        load = sum(float(one["load_seconds"]) for one in mine)
        held.append(
            {
                "worker": worker,
                "host": str(known[worker]["host"]) if worker in known else NOWHERE,
                "slots": slots,
                "bins": mine,
                "rows": sum(one["rows"] for one in mine),
                "bytes": sum(one["bytes"] for one in mine),
                "load_seconds": load,
                "load_per_slot": load / slots if slots else None,
            }
        )
    return held


def list_amounts(held: Plain) -> tuple[str, ...]:
    """List what one worker holds, under `AMOUNTS`."""
    return (
        figures.count(held["slots"]),
        figures.count(len(held["bins"])),
        figures.count(held["rows"]),
        figures.size(held["bytes"]),
        figures.seconds(held["load_seconds"]),
        figures.seconds(held["load_per_slot"]),
    )


def list_partitions(bins: Sequence[Plain]) -> str:
    """List the partitions at one worker, by operator where there are several."""
    operators = sorted({one["operator"] for one in bins})
    listed = [join_ranges(one["partition"] for one in bins if one["operator"] == each) for each in operators]
    if len(operators) == 1:
        return listed[0]
    pairs = zip(operators, listed, strict=True)
    return "; ".join(f"operator {operator}: {partitions}" for operator, partitions in pairs)


def warn_of_few_bins(query: Plain, workers: Sequence[Plain]) -> list[str]:
    """Write a sentence for each operator that has fewer bins than there are slots."""
    slots = sum(int(worker["slots"]) for worker in workers)
    counts = Counter(one["operator"] for one in query["bins"])
    name = str(query.get("name") or query["query"])
    return [
        describe_few_bins(name, operator, bins, slots)
        for operator, bins in sorted(counts.items())
        if bins < slots
    ]


def join_ranges(numbers: Iterable[int]) -> str:
    """Write numbers with neighbours drawn together: 0-3, 7, 9-10."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _header(query: Plain) -> Panel:
    bins = query["bins"]
    facts = {
        "bins": figures.count(len(bins)),
        "rows": figures.count(sum(one["rows"] for one in bins)),
        "state": figures.size(sum(one["bytes"] for one in bins)),
        "imbalance": figures.share(query.get("imbalance")),
    }
    said = f"{query['query']} · after batch {query['batch']}"
    return make_panel(str(query.get("name") or query["query"]), facts, said)


def _workers(query: Plain, workers: Sequence[Plain]) -> RenderableType:
    held = group_by_worker(query, workers)
    names = ("executor", "host", *(f">{name}" for name in AMOUNTS))
    amounts: list[tuple[RenderableType, ...]] = [
        (Text(one["worker"]), Text(one["host"]), *list_amounts(one)) for one in held
    ]
    places = [(Text(one["worker"]), list_partitions(one["bins"])) for one in held]
    return Group(
        make_table(names, amounts, no_wrap=True), Text(""), make_table(("executor", "partitions"), places)
    )


def _bins(query: Plain, every_bin: bool) -> RenderableType:
    bins = query["bins"]
    if every_bin:
        shown = sorted(bins, key=lambda one: (one["operator"], one["partition"]))
    else:
        heaviest = sorted(bins, key=lambda one: (-one["load_seconds"], -one["bytes"], one["partition"]))
        shown = heaviest[:HEAVIEST_SHOWN]
    rows = [
        (
            f"{one['operator']}/{one['partition']}",
            Text(str(one["worker"] or NOWHERE)),
            figures.count(one["rows"]),
            figures.size(one["bytes"]),
            figures.seconds(one["load_seconds"]),
        )
        for one in shown
    ]
    table = make_table(("bin", "executor", ">rows", ">state", ">load a batch"), rows, no_wrap=True)
    left = len(bins) - len(shown)
    more = [Text(f"  the heaviest; {left} more with --bins", style="dim")] if left > 0 else []
    return Group(Text(""), table, *more, Text(""))


def _plan_header(plan: Plain) -> Text:
    # an optimized plan moves more slowly where the latency budget asks for it
    at_least = "at least " if plan["strategy"] == "optimized" else ""
    before, after = figures.share(plan["imbalance_before"]), figures.share(plan["imbalance_after"])
    return Text.assemble(
        (str(plan.get("name") or plan["query"]), "bold"),
        f": {figures.count(len(plan['moves']))} bins, {figures.size(plan['bytes'])}, {plan['strategy']}, ",
        f"{at_least}{figures.count(plan['batches'])} batches; imbalance {before} → {after}\n",
        f"  {plan['reason']}",
    )


def _moves(plan: Plain) -> RenderableType:
    rows = [
        (
            str(move["batch"]),
            f"{move['operator']}/{move['partition']}",
            Text(str(move["from"])),
            Text(f"→ {move['to']}"),
            figures.size(move["bytes"]),
        )
        for move in plan["moves"][:MOVES_SHOWN]
    ]
    names = (">batch", ">bin", "from", "to", ">state")
    left = len(plan["moves"]) - MOVES_SHOWN
    more = [Text(f"  and {left} more; --json has all", style="dim")] if left > 0 else []
    return Group(make_table(names, rows, no_wrap=True, padding=(0, 2)), *more)
