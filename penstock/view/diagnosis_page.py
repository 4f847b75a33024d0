"""The page of a diagnosis: the answer, what to do, the critical path in charts, what other slots bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from penstock.diagnose.answer import advise, answer_in_words
from penstock.diagnose.causes import share_by_cause
from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.explain import list_findings
from penstock.diagnose.whatif.scenarios import WhatIf
from penstock.units.texts import cut_text
from penstock.view import figures
from penstock.view.charts import DASHED, LOOK, draw_critical_path, escape_hover, place_legend
from penstock.view.colours import BLUE, GREEN, GREY, ORANGE
from penstock.view.diagnosis_terminal import (
    SMALLEST_SHARE,
    advise_on_failures,
    advise_on_waste,
    describe_slots,
    rank_gains,
)
from penstock.view.frame import draw_chart, render_page
from penstock.view.stage_tables import (
    PageLinks,
    show_plans,
    tabulate_channels,
    tabulate_executors,
    tabulate_operators,
    tabulate_path,
    tabulate_shares,
    tabulate_stages,
)
from penstock.view.streaming_page import show_query
from penstock.view.timeline_rows import show_timeline

LONGEST_NAME = 60


def render_diagnosis_page(diagnoses: Sequence[Diagnosis]) -> str:
    """Render the page of these applications; of several, a list of their answers comes first."""
    first, alone = diagnoses[0], len(diagnoses) == 1
    return render_page(
        "diagnosis.html.j2",
        title=_name(first) if alone else f"{len(diagnoses)} applications",
        subtitle=_span(first) if alone else "where their latency comes from",
        applications=[_application(one, f"a{number}") for number, one in enumerate(diagnoses)],
    )


def _name(diagnosis: Diagnosis) -> str:
    return diagnosis.name or diagnosis.application


def _span(diagnosis: Diagnosis) -> str:
    whole = diagnosis.whole
    lasts = figures.seconds((whole.end_us - whole.start_us) / 1e6)
    return f"{diagnosis.application} · {lasts} from {figures.day_and_clock(whole.start_us / 1e6)}"


def _application(diagnosis: Diagnosis, prefix: str) -> dict[str, Any]:
    """Return what the template shows of one application."""
    links = PageLinks(diagnosis, prefix)
    shown = _show_tables(diagnosis, links) | {
        "name": _name(diagnosis),
        "prefix": prefix,
        "span": _span(diagnosis),
        "answer": diagnosis.answer,
        "linked_answer": links.link_text(diagnosis.answer),
        "failed": None
        if diagnosis.failed is None
        else {
            "sentence": links.link_text(diagnosis.failed.sentence),
            "advice": advise_on_failures(diagnosis.failed),
        },
        "slots": describe_slots(diagnosis.slots) if diagnosis.slots and diagnosis.slots.slot_seconds else "",
        "findings": [
            {
                "width": max(2, round(80 * one.share)),
                "share": one.share,
                "sentence": links.link_text(one.sentence),
                "advice": advise(one),
            }
            for one in diagnosis.findings
        ],
        "waste": [
            {"kind": one.kind, "sentence": links.link_text(one.sentence), "advice": advise_on_waste(one)}
            for one in diagnosis.waste
        ],
        "queries": [
            show_query(query, links.name("query", number)) for number, query in enumerate(diagnosis.streaming)
        ],
        "course": draw_chart(draw_course(diagnosis)) if len(diagnosis.windows) > 1 else "",
        "activities": draw_chart(draw_activities(diagnosis)),
        "what_if": None if diagnosis.what_if is None else _what_if(diagnosis.what_if),
        "warnings": diagnosis.warnings,
    }
    return shown | {"parts": _list_parts(shown)}


def _show_tables(diagnosis: Diagnosis, links: PageLinks) -> dict[str, Any]:
    """Return the timeline and the tables, whose rows link to each other."""
    timeline = diagnosis.timeline
    return {
        "timeline": show_timeline(timeline, links) if timeline else None,
        "workers": tabulate_shares("worker", diagnosis.whole.worker),
        "operators": tabulate_operators(diagnosis, links),
        "channels": tabulate_channels(diagnosis),
        "pieces": tabulate_path(timeline.path, links) if timeline and timeline.path else None,
        "stages": tabulate_stages(diagnosis, links),
        "executors": tabulate_executors(timeline.executors, diagnosis.slots) if timeline else None,
        "plans": show_plans(diagnosis, links),
    }


def _list_parts(shown: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parts of the page that are there, for the list of links."""
    there = {
        "timeline": ("Timeline", shown["timeline"]),
        "streaming": ("Streaming queries", shown["queries"]),
        "path": ("Critical path", True),
        "stages": ("Stages", shown["stages"].rows),
        "executors": ("Executors", shown["executors"] and shown["executors"].rows),
        "sql": ("SQL", shown["plans"]),
        "what-if": ("What if", shown["what_if"]),
    }
    return [(part, title) for part, (title, is_there) in there.items() if is_there]


def _what_if(found: WhatIf) -> dict[str, Any]:
    if not found.is_trusted:
        took, was = figures.seconds(found.replayed_seconds), figures.seconds(found.measured_seconds)
        missed = f"A replay of what happened takes {took} instead of {was}, so nothing is predicted from it."
        return {"charts": [], "gains": [], "missed": missed}
    seconds = [item.seconds for item in found.forecasts]
    drawn = _draw_by_slots(found, seconds, found.measured_seconds)
    charts = [("On other slots", "the task graph, replayed", draw_chart(drawn))]
    if found.jobs > 1:
        of_jobs = [item.median_job_seconds for item in found.forecasts]
        drawn = _draw_by_slots(found, of_jobs, found.measured_job_seconds)
        charts.append(("One job on other slots", f"the median of {found.jobs} jobs", draw_chart(drawn)))
    return {"charts": charts, "gains": rank_gains(found), "missed": ""}


def draw_activities(diagnosis: Diagnosis) -> go.Figure:
    """Draw each activity's share of the critical path, beside busy time and one path alone."""
    found = diagnosis.compare_activities()
    shares = {name: each for name, each in found.items() if max(each) >= SMALLEST_SHARE}
    sides = (("critical path", GREEN), ("busy time", GREY), ("one random path", BLUE))
    figure = go.Figure(
        [
            _bar(label, color, list(shares), {name: each[place] for name, each in shares.items()})
            for place, (label, color) in enumerate(sides)
        ]
    )
    figure.update_layout(barmode="group", bargap=0.25, height=90 + 58 * len(shares))
    return _dress_bars(figure)


def draw_course(diagnosis: Diagnosis) -> go.Figure:
    """Draw what each window waited for, in seconds."""
    usual = (diagnosis.windows[0].end_us - diagnosis.windows[0].start_us) / 1e6
    windows = [
        {
            "at": window.start_us / 1e6 + usual / 2,
            "seconds": window.length_us / 1e6,
            "causes": {cause: share for cause, share in share_by_cause(window).items() if share > 0},
            "batch_id": number,
            "answer": answer_in_words(list_findings(window)),
        }
        for number, window in enumerate(diagnosis.windows, start=1)
    ]
    return draw_critical_path([{"name": "", "critical_windows": windows}], word="window")


def _draw_by_slots(found: WhatIf, seconds: Sequence[float], measured: float) -> go.Figure:
    """Draw how long something would take on other slots, and how long it took."""
    bars = go.Bar(
        x=[str(item.slots) for item in found.forecasts],
        y=seconds,
        marker={"color": [ORANGE if item.slots == found.slots else BLUE for item in found.forecasts]},
        text=[figures.seconds(value) for value in seconds],
        hovertemplate="%{x} slots: %{text}<extra></extra>",
        width=0.5,
    )
    figure = go.Figure([bars])
    figure.add_hline(y=measured, line=DASHED, annotation_text=f"measured {figures.seconds(measured)}")
    figure.update_layout(height=300, showlegend=False)
    _dress_bars(figure)
    figure.update_xaxes(type="category", title_text="slots", tickformat="")
    figure.update_yaxes(title_text="seconds", autorange=True, rangemode="tozero", dtick=None, ticksuffix="")
    return figure


def _bar(label: str, color: str, names: Sequence[str], values: Mapping[str, float]) -> go.Bar:
    shares = [values.get(name, 0.0) for name in names]
    return go.Bar(
        name=label,
        x=shares,
        y=[_cut(name) for name in names],
        orientation="h",
        marker={"color": color},
        text=[f"{share:.1%}" if share < 0.1 else f"{share:.0%}" for share in shares],
        textposition="outside",
        cliponaxis=False,
        hovertext=[escape_hover(name) for name in names],
        hovertemplate="%{hovertext}: %{text}<extra></extra>",
    )


def _cut(name: str) -> str:
    """Cut names of plan nodes that are as long as a page is wide; hovering shows all of it."""
    return escape_hover(cut_text(name, LONGEST_NAME))


def _dress_bars(figure: go.Figure) -> go.Figure:
    figure.update_layout(**LOOK, margin={"l": 12, "r": 60, "t": 36, "b": 36}, legend=place_legend())
    figure.update_yaxes(autorange="reversed", automargin=True, dtick=1, showgrid=False, ticksuffix="  ")
    figure.update_xaxes(tickformat=".2~%", zeroline=False, rangemode="tozero")
    return figure
