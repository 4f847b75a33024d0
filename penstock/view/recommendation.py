"""A recommendation in the terminal and as a page: what was tried, what it would have cost, and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.simulate.recommend import SHORT_ALLOWED, Choice, Recommendation
from penstock.view import figures
from penstock.view.terminal import make_table

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEADINGS = ("settings", "hours", "of held", "too small", "p50", "p99", "changes", "sizes")
EXPLAINED = (
    "hours: of executors, or of instances; of held: of the hours really held; too small: share of the time "
    "in which the size could not carry the load; p50, p99: estimated latency; best is the cheapest that is "
    f"too small no longer than was really the case, or than {SHORT_ALLOWED:.1%}; if none is, the least short"
)


def render_recommendation(found: Recommendation) -> RenderableType:
    """Show the best settings, then all that were tried, and what a replay cannot know."""
    heading, *right = HEADINGS
    columns = (heading, *(f">{name}" for name in right))
    rows = [tuple(map(Text, cells)) for cells in list_choices(found)]
    title = f"{found.application}, {found.windows} windows over {figures.seconds(found.end - found.start)}"
    limits = [Text(f"- {limit}", "yellow") for limit in found.limits]
    return Group(
        Text(f"best: {describe_settings(found)}", "bold"),
        "",
        make_table(columns, rows, title=title),
        "",
        Text(EXPLAINED, "dim"),
        "",
        Text("What a replay cannot know:"),
        *limits,
    )


def describe_settings(found: Recommendation) -> str:
    """Write the recommended settings as a settings file has them."""
    best = found.best
    dials = [f"{name}: {value:g}" for name, value in best.settings.items()]
    sizes = [f"min_executors: {best.least}", f"max_executors: {best.most}"]
    return ", ".join([f"policy: {best.policy}", *dials, *sizes])


def list_choices(found: Recommendation) -> list[tuple[str, ...]]:
    """List what was held and every choice, under `HEADINGS`."""
    return [_list_figures(choice, found.held) for choice in (found.held, *found.choices)]


def _list_figures(choice: Choice, held: Choice) -> tuple[str, ...]:
    dials = ", ".join(f"{name} {value:g}" for name, value in choice.settings.items())
    return (
        f"{choice.policy}, {dials}" if dials else choice.policy,
        f"{choice.hours:,.1f}",
        f"{choice.hours / held.hours:.0%}" if held.hours else figures.ABSENT,
        f"{choice.short_ratio:.2%}",
        figures.seconds(choice.p50_latency_seconds),
        figures.seconds(choice.p99_latency_seconds),
        str(choice.steps),
        f"{choice.least} to {choice.most}",
    )


def render_recommendation_page(found: Recommendation) -> str:
    """Render the same as a page, with cost and latency of every choice against each other."""
    from penstock.view.frame import draw_chart, render_page

    best, held = found.best, found.held
    saved = f"{1 - best.hours / held.hours:.0%} less" if held.hours else ""
    return render_page(
        "recommendation.html.j2",
        title=found.application,
        subtitle=f"settings recommended from {found.windows} windows over "
        f"{figures.seconds(found.end - found.start)}",
        figures=[
            ("policy", best.policy, ""),
            ("hours", f"{best.hours:,.1f}", f"{held.hours:,.1f} were held, {saved}"),
            ("too small", f"{best.short_ratio:.2%}", f"as it was run {held.short_ratio:.2%}"),
            ("p99 latency", figures.seconds(best.p99_latency_seconds), "estimated"),
        ],
        chart=draw_chart(_draw_choices(found), "choices"),
        best=describe_settings(found),
        headings=HEADINGS,
        rows=list_choices(found),
        explained=EXPLAINED,
        limits=found.limits,
    )


def _draw_choices(found: Recommendation) -> go.Figure:
    import plotly.graph_objects as go

    from penstock.view.charts import escape_hover
    from penstock.view.colours import BLUE, GREY, ORANGE

    shown = (found.held, *found.choices)
    names = [escape_hover(_list_figures(choice, found.held)[0]) for choice in shown]
    colours = [GREY, ORANGE, *[BLUE] * (len(shown) - 2)]
    dots = go.Scatter(
        x=[choice.hours for choice in shown],
        y=[choice.p99_latency_seconds for choice in shown],
        text=names,
        mode="markers",
        marker={"color": colours, "size": 11},
        hovertemplate="%{text}<br>%{x:,.1f} hours, p99 %{y:,.3g} s<extra></extra>",
    )
    figure = go.Figure(dots)
    figure.update_layout(
        height=420,
        template="plotly_white",
        margin={"l": 70, "r": 24, "t": 30, "b": 50},
        xaxis_title="hours of executors or instances",
        yaxis_title="estimated p99 latency, seconds",
    )
    return figure
