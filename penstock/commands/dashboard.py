"""`penstock dashboard`: the live pages in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.commands.config import Config
from penstock.commands.printing import Json, print_json, say
from penstock.errors import BadInput


def dashboard(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where to listen; 127.0.0.1:4050 by default, port 0 takes a free one."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Who opens a page must know it; beyond loopback one is made where none is given."),
    ] = None,
    proxy_header: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The header in which a proxy before this server names the user."),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="A name that this server is called by, too."),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="The fleet to show; default: the setting report_to."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, take no orders.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show all applications live in a browser.

    It serves until it is interrupted; what is not given here is as the settings say.
    """
    from penstock.settings.model import load_settings
    from penstock.view.dashboard.access import choose_access
    from penstock.view.dashboard.app import make_app
    from penstock.view.dashboard.server import (
        DEFAULT_ADDRESS,
        describe_address,
        listen_at,
        parse_address,
        serve,
    )

    settings = load_settings(config)
    if fleet is not None:
        if not fleet.is_dir():
            raise BadInput(f"--fleet: {fleet}: no such directory")
        settings = settings.change(report_to=str(fleet))
    chosen = settings.dashboard
    where = parse_address(address or chosen.address or DEFAULT_ADDRESS)
    names = (*chosen.host_names, *(host_name or ()))
    reading = read_only or chosen.read_only
    access = choose_access(
        where.host, token or chosen.token, proxy_header or chosen.proxy_header, names, reading
    )
    listening = listen_at(where)
    opened = describe_address(listening, access)
    if as_json:
        print_json({"address": opened, "read_only": reading})
    else:
        say(f"the dashboard is at {opened} (control-C ends it)")
    serve(make_app(settings, access), listening)
