"""The frame of all pages: templates are rendered here, always escaped, into pages that need no network."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from penstock.errors import ActionFailed
from penstock.view import figures, words

if TYPE_CHECKING:
    import plotly.graph_objects as go

CHART_CONFIG: dict[str, Any] = {"displayModeBar": False, "responsive": True}
OWN_TEMPLATES = "penstock.view"

Figure = tuple[str, str, str]
"""The text of a tile: label, value, note; the note may be empty."""


def render_page(
    template: str,
    title: str,
    subtitle: str,
    tab: str = "",
    charts: bool = True,
    package: str = OWN_TEMPLATES,
    **values: Any,
) -> str:
    """Render a page that extends the frame; with `charts` it brings the plotting library, once.

    Another package may keep a `templates` folder of its own; its templates extend the same frame.
    """
    shared = {"title": title, "subtitle": subtitle, "tab": tab, "version": installed_version()}
    return render_template(template, package, plotly=_plotly() if charts else "", **shared, **values)


def render_template(template: str, package: str = OWN_TEMPLATES, **values: Any) -> str:
    """Render one template; every value is escaped unless it is Markup."""
    return _environment(package).get_template(template).render(values)


def render_markup(template: str, **values: Any) -> Markup:
    """Render one template as a piece of a page: what is in it is escaped already."""
    return Markup(render_template(template, **values))


def draw_chart(figure: go.Figure, name: str | None = None) -> Markup:
    """Turn a chart into a piece of a page; the frame brings the library that draws it."""
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=CHART_CONFIG)
    return Markup(text)


def charts_page(title: str, subtitle: str, body: Markup) -> str:
    """Put the frame around a body that holds charts and is markup already."""
    return render_page("plain.html.j2", title, subtitle, body=body)


def write_text(text: str, path: Path) -> Path:
    """Write a page and return its absolute path; raises ActionFailed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ActionFailed(f"cannot write the page {path}: {error.strerror}") from error
    return path.resolve()


@cache
def _environment(package: str) -> Environment:
    found = [PackageLoader(name) for name in dict.fromkeys((package, OWN_TEMPLATES))]
    made = Environment(
        loader=ChoiceLoader(found),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        one.__name__: one for one in (figures.clock, figures.seconds, figures.share, figures.plain)
    } | {one.__name__: one for one in (words.describe_change, words.describe_effect, words.name_decision)}
    return made


@cache
def _plotly() -> Markup:
    # plotly takes half a second to import: only pages with charts need it
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def installed_version() -> str:
    """Return the version of the installed package, or nothing where it is not installed."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return ""
