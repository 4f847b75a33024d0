"""Commands that talk to a running application: what it does, pausing it, and moving its state by hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.commands.config import Config
from penstock.commands.printing import FAILED, Json, answer, say, terminal, write_page
from penstock.errors import ActionFailed, BadInput, NotFound
from penstock.runtime import control
from penstock.runtime.control import Running

STATUS_EVERY_SECONDS = 1.0
MIGRATION_EVERY_SECONDS = 0.5
LONGEST_START_SECONDS = 30.0
"""The loop takes an order up at its next tick; one that is busy for longer than this is stuck."""
CONTROLLERS = "fleets"
"""Beneath the directory of the sockets: where the controllers of fleets on this machine answer."""
NOT_FAILED = ("done", "stopped", "moving")

Application = Annotated[
    str | None,
    typer.Argument(metavar="APP", help="The application's id or name; may be left out while only one runs."),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write it to this HTML page.")]
Chosen = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="fluid, batched, optimized or all-at-once; default: as the settings say.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and move nothing.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="End as soon as the moving has begun.")]


def watch(
    application: Application = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show an application live: rates, backlog, size, decisions.

    With --json it is shown once, as `status` does.
    """
    from penstock.view.foreign_text import replace_all_controls
    from penstock.view.run_terminal import format_run_line, render_run

    running = find_running(application, config)
    if once or as_json:
        seen = _ask_status(running)
        answer(seen, as_json, render_run(seen))
    elif sys.stdout.isatty():
        with Live(console=terminal(), auto_refresh=False, screen=False) as live:
            try:
                for seen in _follow_status(running):
                    live.update(render_run(seen), refresh=True)
            except KeyboardInterrupt:
                # the way to leave this view; the application runs on
                return
    else:
        for seen in _follow_status(running):
            sys.stdout.write(replace_all_controls(format_run_line(seen)) + "\n")
            sys.stdout.flush()


def status(
    application: Application = None, html: Html = None, config: Config = None, as_json: Json = False
) -> None:
    """Show an application once, or write a page about it."""
    from penstock.view.run_terminal import render_run

    seen = _ask_status(find_running(application, config))
    if html is not None:
        # plotly takes half a second to import: only pages need it
        from penstock.view.run_page import render_run_page

        write_page(render_run_page(seen), html)
    answer(seen, as_json, render_run(seen))


def health(
    application: Application = None,
    journal: Annotated[
        str | None,
        typer.Option(help="Ask this journal, of whatever machine, and not the applications themselves."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Tell whether the loop comes round: exit 0, or 1.

    Without APP all that run are asked. An autopilot that hangs, or that does not answer, is not well.
    """
    found = _list_pulses(journal) if journal else _ask_health(locate_sockets(config))
    asked = [one for one in found if application in (None, one["application"], one["name"])]
    if not asked:
        raise NotFound(f"no autopilot {f'of {application} ' if application else ''}is known to run")
    well = not any(one["hangs"] for one in asked)
    said = "\n".join(f"{one['application']}: {_describe_health(one)}" for one in asked)
    answer({"healthy": well, "applications": asked}, as_json, said)
    if not well:
        raise typer.Exit(FAILED)


def _ask_health(directory: Path) -> list[dict[str, Any]]:
    """Ask applications, pipelines and fleets on their own sockets, once: a probe has little time."""
    found = []
    places = (directory, directory / control.PIPELINES, directory / CONTROLLERS)
    for path in sorted(path for place in places for path in place.glob("*.sock")):
        known = {"application": path.stem, "name": "", "silent_seconds": None, "hangs_after_seconds": None}
        try:
            told = control.ask(path, "health")
            found.append({key: told[key] for key in (*known, "hangs")})
        except NotFound:
            continue
        except ActionFailed:
            found.append({**known, "hangs": True})
    return found


def _list_pulses(journal: str) -> list[dict[str, Any]]:
    from penstock.journal.pulses import HEARTBEAT, list_pulses
    from penstock.journal.store import open_journal

    with closing(open_journal(journal, create=False)) as opened:
        return list_pulses(opened.recall_all(HEARTBEAT), time.time())


def _describe_health(one: dict[str, Any]) -> str:
    if one["silent_seconds"] is None:
        return "does not answer"
    silent = f"its loop came round {one['silent_seconds']:.1f} s ago"
    return f"hangs: {silent}, and should within {one['hangs_after_seconds']:g} s" if one["hangs"] else silent


def pause(application: Application = None, config: Config = None, as_json: Json = False) -> None:
    """Keep watching; decide and change nothing until `resume`."""
    _tell(application, config, "pause", as_json)


def resume(application: Application = None, config: Config = None, as_json: Json = False) -> None:
    """Act again after `pause`."""
    _tell(application, config, "resume", as_json)


def state(
    application: Application = None,
    html: Html = None,
    bins: Annotated[bool, typer.Option("--bins", help="List every bin, not the heaviest alone.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show where state lies: bins, bytes, load per executor."""
    from penstock.view.state_terminal import render_state

    running = find_running(application, config)
    seen = running.ask("state")["state"]
    if html is not None:
        from penstock.view.state_page import render_state_page

        write_page(render_state_page(seen, running.application, running.name), html)
    answer({**_identify(running), **seen}, as_json, render_state(seen, bins))


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
    """Spread state evenly over the executors while queries run."""
    chosen = _parse_strategy(strategy)
    running = find_running(application, config)
    if stop:
        stopping = bool(running.ask("stop-migration")["stopping"])
        said = "stops at the next batch boundary" if stopping else "no migration is under way"
        answer({**_identify(running), "stopping": stopping}, as_json, f"{running.application}: {said}")
        return
    _carry_out(running, "rebalance", {"strategy": chosen}, dry_run, no_wait, as_json)


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
    """Move all state off an executor, while queries run.

    It can then be stopped without a slow batch.
    """
    if len(names) > 2:
        raise BadInput(f"drain takes [APP] EXECUTOR, not {len(names)} names: {' '.join(names)}")
    fields = {"executor": names[-1], "strategy": _parse_strategy(strategy)}
    running = find_running(names[0] if len(names) == 2 else None, config)
    _carry_out(running, "drain", fields, dry_run, no_wait, as_json)


def find_running(application: str | None, config: Path | None) -> Running:
    """Find the application of this id or name, or the only one that runs."""
    return control.find_running(locate_sockets(config), application)


def locate_sockets(config: Path | None) -> Path:
    """Return the directory in which running applications listen."""
    from penstock.settings.model import load_settings

    return Path(load_settings(config).run.runtime_directory)


def _identify(running: Running) -> dict[str, Any]:
    return {"application": running.application, "name": running.name}


def _tell(application: str | None, config: Path | None, command: str, as_json: bool) -> None:
    from penstock.runtime.by_hand import name_user

    running = find_running(application, config)
    paused = bool(running.ask(command, by=name_user())["paused"])
    said = f"{running.application} is {'paused' if paused else 'running'}"
    answer({**_identify(running), "paused": paused}, as_json, said)


def _ask_status(running: Running) -> dict[str, Any]:
    seen: dict[str, Any] = running.ask("status")["status"]
    return seen


def _follow_status(running: Running) -> Iterator[dict[str, Any]]:
    """Yield a status a second until the application is gone."""
    while True:
        try:
            yield _ask_status(running)
        except NotFound:
            say(f"{running.application} has ended")
            return
        time.sleep(STATUS_EVERY_SECONDS)


def _parse_strategy(asked: str | None) -> str | None:
    # the rooms behind it need numpy, and every command would wait for that
    from penstock.dataflow.moves import Strategy

    return None if asked is None else Strategy.parse(asked).value


def _carry_out(
    running: Running, command: str, fields: dict[str, Any], dry_run: bool, no_wait: bool, as_json: bool
) -> None:
    """Show the plan, then have it carried out and follow it to its end."""
    from penstock.view.state_terminal import render_plans

    plans, started, migration = running.ask(command, **fields, dry_run=True)["plans"], False, None
    if not as_json:
        terminal().print(render_plans(plans))
    if plans and not dry_run:
        before = running.ask("migration")["migration"]
        # what lies where may have changed between the two questions: what counts is what was begun
        begun = running.ask(command, **fields, dry_run=False)
        plans, started = begun["plans"], bool(begun["started"])
        migration = _follow_migration(running, before) if started and not no_wait else None
    if as_json or started:
        result = {**_identify(running), "plans": plans, "started": started, "migration": migration}
        answer(result, as_json, _describe_migration(migration))
    if migration is not None and migration["state"] not in NOT_FAILED:
        raise typer.Exit(FAILED)


def _describe_migration(migration: dict[str, Any] | None) -> Text:
    if migration is None:
        return Text("begun")
    counted = f"{migration['moved']} of {migration['of']} bins moved"
    return Text(f"{migration['state']}: {migration.get('detail') or counted}")


def _follow_migration(running: Running, before: dict[str, Any] | None) -> dict[str, Any]:
    """Watch until the end; whoever leaves with control-C leaves the migration going on."""
    seen: dict[str, Any] = {"state": "moving", "moved": 0, "of": 0, "detail": ""}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[batch]}"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=terminal(error=True), disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("moving bins", total=None, batch="")
            for seen in _poll_migration(running, before):
                batch, steady = seen.get("batch_seconds"), seen.get("steady_seconds")
                took = f"batch {batch:.1f} s, steady {steady:.1f} s" if batch else ""
                bar.update(task, total=seen["of"], completed=seen["moved"], batch=took)
    except KeyboardInterrupt:
        say("the migration goes on; `penstock rebalance --stop` ends it at the next batch boundary")
    return seen


def _poll_migration(running: Running, before: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield how the migration stands, twice a second until it has ended."""
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
        time.sleep(MIGRATION_EVERY_SECONDS)
        waited += MIGRATION_EVERY_SECONDS
