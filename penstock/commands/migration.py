"""`penstock state`, `rebalance` and `drain`: where state lies, and moving it by hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock import control
from penstock.commands.live import Application, Config, find_running
from penstock.commands.printing import FAILED, Json, answer, reported, say, terminal
from penstock.errors import ActionFailed, BadInput

EVERY_SECONDS = 0.5
LONGEST_START_SECONDS = 30.0
"""An order is taken up at the loop's next tick; a loop that is busy for longer than this is stuck."""
SUCCEEDED = ("done", "stopped")

Chosen = Annotated[
    str | None,
    typer.Option("--strategy", help="fluid, batched or all-at-once; as the settings say if left out."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and move nothing.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="End as soon as the moving has begun.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a heat map to this HTML page.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("state")(state)
    app.command("rebalance")(rebalance)
    app.command("drain")(drain)


@reported
def state(
    application: Application = None,
    html: Html = None,
    bins: Annotated[bool, typer.Option("--bins", help="List every bin, not the heaviest alone.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show where every bin of state lies: rows, bytes, load per executor, imbalance."""
    from penstock.view.state import render_state
    from penstock.view.state_page import write_page

    running = find_running(application, config)
    seen = running.ask("state")["state"]
    if html is not None:
        say(f"wrote {write_page(seen, running.application, running.name, html)}")
    answer({**_named(running), **seen}, as_json, render_state(seen, bins))


@reported
def rebalance(
    application: Application = None,
    strategy: Chosen = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the migration under way at the next batch boundary.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Spread the state evenly over the executors while the queries run."""
    running = find_running(application, config)
    if stop:
        stopping = bool(running.ask("stop-migration")["stopping"])
        said = "stops at the next batch boundary" if stopping else "no migration is under way"
        answer({**_named(running), "stopping": stopping}, as_json, f"{running.application}: {said}")
        return
    _carry_out(running, "rebalance", {"strategy": _strategy(strategy)}, dry_run, no_wait, as_json)


@reported
def drain(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[APP] EXECUTOR",
            help="The executor's id, after the application's id or name unless only one runs.",
        ),
    ],
    strategy: Chosen = None,
    dry_run: DryRun = False,
    no_wait: NoWait = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Move all state off an executor, so that it can go without a slow batch."""
    if len(names) > 2:
        raise BadInput(f"drain takes an application and an executor, got {' '.join(names)}")
    running = find_running(names[0] if len(names) == 2 else None, config)
    fields = {"executor": names[-1], "strategy": _strategy(strategy)}
    _carry_out(running, "drain", fields, dry_run, no_wait, as_json)


def _named(running: control.Running) -> dict[str, Any]:
    return {"application": running.application, "name": running.name}


def _strategy(asked: str | None) -> str | None:
    # the rooms behind it need numpy, and every command would wait for that
    from penstock.migrate.plan import Strategy

    return None if asked is None else Strategy.named(asked).value


def _carry_out(
    running: control.Running,
    command: str,
    fields: dict[str, Any],
    dry_run: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Show the plan, then have it carried out and follow it to its end."""
    from penstock.view.state import render_plans

    planned = running.ask(command, **fields, dry_run=True)["plans"]
    if not as_json:
        terminal().print(render_plans(planned))
    if dry_run or not planned:
        _result(running, planned, False, None, as_json)
        return
    before = running.ask("migration")["migration"]
    begun = running.ask(command, **fields, dry_run=False)
    # what lies where may have changed between the two questions: what counts is what was begun
    plans, started = begun["plans"], bool(begun["started"])
    migration = _followed(running, before) if started and not no_wait else None
    _result(running, plans, started, migration, as_json)
    if migration is not None and migration["state"] not in (*SUCCEEDED, "moving"):
        raise typer.Exit(FAILED)


def _result(
    running: control.Running,
    plans: list[dict[str, Any]],
    started: bool,
    migration: dict[str, Any] | None,
    as_json: bool,
) -> None:
    result = {**_named(running), "plans": plans, "started": started, "migration": migration}
    if as_json or started:
        answer(result, as_json, _said(migration))


def _said(migration: dict[str, Any] | None) -> Text:
    if migration is None:
        return Text("begun")
    counted = f"{migration['moved']} of {migration['of']} bins moved"
    return Text(f"{migration['state']}: {migration.get('detail') or counted}")


def _followed(running: control.Running, before: dict[str, Any] | None) -> dict[str, Any]:
    """Watch until the end; whoever leaves with control-C leaves the migration going on."""
    seen: dict[str, Any] = {}
    try:
        with _bar() as bar:
            task = bar.add_task("moving bins", total=None, batch="")
            for seen in _standings(running, before):
                bar.update(task, total=seen["of"], completed=seen["moved"], batch=_batch(seen))
    except KeyboardInterrupt:
        say("the migration goes on; `penstock rebalance --stop` ends it at the next batch boundary")
    return seen or {"state": "moving", "moved": 0, "of": 0, "detail": ""}


def _standings(running: control.Running, before: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """How the migration stands, twice a second until it has ended."""
    waited = 0.0
    while True:
        standing = running.ask("migration")["migration"]
        if standing is None or (standing == before and standing["state"] != "moving"):
            # the order waits for the loop's next tick, and what is told is still the migration before
            if waited > LONGEST_START_SECONDS:
                raise ActionFailed(f"the migration did not begin within {LONGEST_START_SECONDS:.0f} s")
        else:
            yield standing
            if standing["state"] != "moving":
                return
        time.sleep(EVERY_SECONDS)
        waited += EVERY_SECONDS


def _batch(seen: dict[str, Any]) -> str:
    if not seen.get("batch_seconds"):
        return ""
    return f"batch {seen['batch_seconds']:.1f} s, steady {seen['steady_seconds']:.1f} s"


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[batch]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
