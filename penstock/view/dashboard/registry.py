"""The one list of pages: each is a file of its own with its routes; the navigation has this order."""

from __future__ import annotations

from penstock.view.dashboard import (
    application,
    applications,
    diagnosis,
    fleet,
    memory,
    metrics,
    pipelines,
    state,
)
from penstock.view.dashboard.pages import Page

PAGES: tuple[Page, ...] = (
    applications.PAGE,
    application.PAGE,
    state.PAGE,
    memory.PAGE,
    pipelines.PAGE,
    fleet.PAGE,
    diagnosis.PAGE,
    metrics.PAGE,
)
