"""`penstock policies` and `penstock check-policy`: all policies, and the contract that they keep."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.commands.printing import Json, answer, progress, say


def policies(as_json: Json = False) -> None:
    """List the policies, and when to choose each of them.

    Those of installed packages are among them; one that cannot be imported is named on standard error.
    """
    from penstock.plugins.finding import list_policies
    from penstock.view.decisions_terminal import render_policies

    entries, failures = list_policies()
    told = ("name", "summary", "needs", "promises", "choose_when", "usable_in", "baseline", "origin")
    listed = [{key: getattr(entry, key) for key in told} for entry in entries]
    for failure in failures:
        say(f"left out: {failure}")
    answer({"policies": listed, "left_out": list(failures)}, as_json, render_policies(entries))


def check_policy(
    policy: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="The class, as an entry point names it.")
    ],
    as_json: Json = False,
) -> None:
    """Check that a policy of your own keeps the contract.

    It imports the module, makes the policy with several settings, and asks it about ordinary and about
    impossible windows. Exit 1 if it breaks the contract.
    """
    from penstock.plugins.contract import check_policy as run_checks
    from penstock.plugins.finding import load_policy
    from penstock.view.decisions_terminal import render_checks

    entry = load_policy(policy)
    progress(f"{entry.name}: asking about ordinary and impossible windows")
    results = run_checks(entry.make)
    kept = not any(result.problem for result in results)
    rows = [{"check": one.check, "kept": not one.problem, "problem": one.problem} for one in results]
    told = {"policy": entry.name, "kept": kept, "checks": rows}
    answer(told, as_json, render_checks(entry.name, results))
    if not kept:
        raise typer.Exit(1)
