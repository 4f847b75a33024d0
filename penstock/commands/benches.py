"""`penstock bench` and `penstock demo`: claims measured, and the autopilot shown at work."""

from __future__ import annotations

import ast
import difflib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from penstock.commands.printing import Json, answer, print_json, progress, reported, terminal
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.bench.report import BenchReport


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("bench")(bench)
    app.command("demo")(demo)


@reported
def bench(
    name: Annotated[str | None, typer.Argument(help="Which claim to measure.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer or shorter runs; rougher figures.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    as_json: Json = False,
) -> None:
    """Measure one claim, its sides against each other in one run."""
    from penstock.bench import BENCHES

    if listed:
        _list(as_json)
        return
    if name is None:
        raise BadInput(f"bench: name one of {', '.join(sorted(BENCHES))}")
    report: BenchReport = import_module(_module(name)).run(quick, progress)
    report.print_table(terminal())
    if as_json:
        print_json(report.to_json())


@reported
def demo(
    html: Annotated[Path | None, typer.Option("--html", help="Where to write the page of the run.")] = None,
    as_json: Json = False,
) -> None:
    """Show the autopilot at work on a local cluster of executor processes; ends by itself."""
    from penstock.demo import run_demo

    result = run_demo(html=html, quiet=as_json)
    if as_json:
        print_json(result)


def _module(name: str) -> str:
    from penstock.bench import BENCHES

    if name in BENCHES:
        return BENCHES[name]
    near = difflib.get_close_matches(name, BENCHES, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(BENCHES))}"
    raise BadInput(f"bench: unknown benchmark {name!r}; {hint}")


def _list(as_json: bool) -> None:
    from penstock.bench import BENCHES

    table = Table("benchmark", "what it measures", box=None, header_style="dim")
    described = {name: _first_line(module) for name, module in sorted(BENCHES.items())}
    for name, summary in described.items():
        table.add_row(name, summary)
    rows = [{"name": name, "summary": summary} for name, summary in described.items()]
    answer({"benches": rows}, as_json, table)


def _first_line(module: str) -> str:
    """What the module says of itself, read without importing it: some start by importing Spark."""
    found = find_spec(module)
    if found is None or found.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
