"""Where state lies, and what a plan would move, for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.migrate.repartition import BinsLimit
from penstock.view import figures

HEAVIEST_SHOWN = 12
MOVES_SHOWN = 24
NOWHERE = "–"

Plain = Mapping[str, Any]


def render_state(state: Plain, every_bin: bool = False) -> RenderableType:
    """The state of all queries of one application."""
    parts: list[RenderableType] = []
    if state.get("obstacle"):
        parts.append(Text(f"! {state['obstacle']}", style="yellow"))
    for query in state.get("queries", ()):
        parts += [_header(query), _workers(query, state["workers"])]
        parts += [Text(f"\n! {said}", style="yellow") for said in too_few_bins(query, state["workers"])]
        parts.append(_bins(query, every_bin))
    if not state.get("queries"):
        parts.append(Text("no query holds state yet", style="dim"))
    return Group(*parts)


def render_plans(plans: Sequence[Plain]) -> RenderableType:
    """What would move, from where to where, and what it brings."""
    if not plans:
        return Text("nothing has to move: the state lies as it should")
    return Group(*(part for plan in plans for part in (_plan_header(plan), _moves(plan))))


def held_by(query: Plain, workers: Sequence[Plain]) -> list[dict[str, Any]]:
    """What each worker holds of a query: bins, rows, bytes, load and load per slot; unknown places last."""
    slots = {str(worker["worker"]): int(worker["slots"]) for worker in workers}
    hosts = {str(worker["worker"]): str(worker["host"]) for worker in workers}
    places = dict.fromkeys([*slots, *(str(one["worker"] or NOWHERE) for one in query["bins"])])
    held = []
    for worker in places:
        mine = [one for one in query["bins"] if str(one["worker"] or NOWHERE) == worker]
        load = sum(float(one["load_seconds"]) for one in mine)
        held.append(
            {
                "worker": worker,
                "host": hosts.get(worker, NOWHERE),
                "slots": slots.get(worker),
                "bins": mine,
                "rows": sum(one["rows"] for one in mine),
                "bytes": sum(one["bytes"] for one in mine),
                "load_seconds": load,
                "load_per_slot": load / slots[worker] if slots.get(worker) else None,
            }
        )
    return held


def too_few_bins(query: Plain, workers: Sequence[Plain]) -> list[str]:
    """One sentence for each operator that has fewer bins than there are slots."""
    slots = sum(int(worker["slots"]) for worker in workers)
    counts = Counter(one["operator"] for one in query["bins"])
    name = str(query.get("name") or query["query"])
    return [
        BinsLimit(str(query["query"]), name, operator, bins, slots).words()
        for operator, bins in sorted(counts.items())
        if bins < slots
    ]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers with neighbours drawn together: 0-3, 7, 9-10."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _header(query: Plain) -> Panel:
    bins = query["bins"]
    facts = [
        ("bins ", figures.count(len(bins))),
        ("rows ", figures.count(sum(one["rows"] for one in bins))),
        ("state ", figures.size(sum(one["bytes"] for one in bins))),
        ("imbalance ", figures.share(query.get("imbalance"))),
    ]
    line = Text("   ").join(Text.assemble((label, "dim"), (value, "bold")) for label, value in facts)
    title = Text(str(query.get("name") or query["query"]), style="bold")
    subtitle = Text(f"{query['query']} · after batch {query['batch']}", style="dim")
    return Panel(line, title=title, title_align="left", subtitle=subtitle, subtitle_align="right")


def _workers(query: Plain, workers: Sequence[Plain]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("executor", no_wrap=True)
    table.add_column("host", no_wrap=True)
    for name in ("slots", "bins", "rows", "state", "load a batch", "a slot"):
        table.add_column(name, justify="right", no_wrap=True)
    held = held_by(query, workers)
    for one in held:
        table.add_row(
            Text(one["worker"]),
            Text(one["host"]),
            figures.count(one["slots"]),
            figures.count(len(one["bins"])),
            figures.count(one["rows"]),
            figures.size(one["bytes"]),
            figures.seconds(one["load_seconds"]),
            figures.seconds(one["load_per_slot"]),
        )
    return Group(table, Text(""), _places(held))


def _places(held: Sequence[Plain]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("executor", no_wrap=True)
    table.add_column("partitions")
    for one in held:
        table.add_row(Text(one["worker"]), _placed(one["bins"]))
    return table


def _placed(bins: Sequence[Plain]) -> str:
    """The partitions at one worker, by operator where there are several."""
    operators = sorted({one["operator"] for one in bins})
    listed = {
        operator: ranges(one["partition"] for one in bins if one["operator"] == operator)
        for operator in operators
    }
    if len(operators) == 1:
        return listed[operators[0]]
    return "; ".join(f"operator {operator}: {listed[operator]}" for operator in operators)


def _bins(query: Plain, every_bin: bool) -> RenderableType:
    bins = query["bins"]
    if every_bin:
        shown = sorted(bins, key=lambda one: (one["operator"], one["partition"]))
    else:
        heaviest = sorted(bins, key=lambda one: (-one["load_seconds"], -one["bytes"], one["partition"]))
        shown = heaviest[:HEAVIEST_SHOWN]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("bin", no_wrap=True)
    table.add_column("executor", no_wrap=True)
    for name in ("rows", "state", "load a batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in shown:
        table.add_row(
            f"{one['operator']}/{one['partition']}",
            Text(str(one["worker"] or NOWHERE)),
            figures.count(one["rows"]),
            figures.size(one["bytes"]),
            figures.seconds(one["load_seconds"]),
        )
    left = len(bins) - len(shown)
    more = [Text(f"  the heaviest; {left} more with --bins", style="dim")] if left > 0 else []
    return Group(Text(""), table, *more, Text(""))


def _plan_header(plan: Plain) -> Text:
    moves = plan["moves"]
    return Text.assemble(
        (str(plan.get("name") or plan["query"]), "bold"),
        f": {figures.count(len(moves))} bins, {figures.size(plan['bytes'])}, {plan['strategy']}, ",
        f"{_expected(plan)}; imbalance {figures.share(plan['imbalance_before'])} → ",
        f"{figures.share(plan['imbalance_after'])}\n  {plan['reason']}",
    )


def _expected(plan: Plain) -> str:
    """A fluid plan has one bin a batch, and goes faster where the latency budget bears it."""
    about = "at most " if plan["strategy"] == "fluid" else ""
    return f"{about}{figures.count(plan['batches'])} batches"


def _moves(plan: Plain) -> RenderableType:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("batch", "bin"):
        table.add_column(name, no_wrap=True, justify="right")
    for name in ("from", "to"):
        table.add_column(name, no_wrap=True)
    table.add_column("state", justify="right", no_wrap=True)
    for cells in _move_rows(plan["moves"][:MOVES_SHOWN]):
        table.add_row(*cells)
    left = len(plan["moves"]) - MOVES_SHOWN
    more = [Text(f"  and {left} more; --json has all", style="dim")] if left > 0 else []
    return Group(table, *more)


def _move_rows(moves: Sequence[Plain]) -> Iterator[tuple[str, str, Text, Text, str]]:
    for move in moves:
        yield (
            str(move["batch"]),
            f"{move['operator']}/{move['partition']}",
            Text(str(move["from"])),
            Text(f"→ {move['to']}"),
            figures.size(move["bytes"]),
        )
