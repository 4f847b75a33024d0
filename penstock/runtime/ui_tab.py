"""Our parts of the Spark UI: what the tab says, and the thread that keeps each up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from html import escape
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.errors import PenstockError
from penstock.runtime.pace import describe_pace
from penstock.runtime.status import list_essentials
from penstock.units.figures import count
from penstock.units.texts import cut_text

log = logging.getLogger(__name__)

DECISIONS_SHOWN = 10
LONGEST_TEXT = 600
"""Characters of a reason that are shown."""
CLOSE_SECONDS = 1.0


class UIPart(Protocol):
    """A part of the Spark UI that shows a text; `runtime.spark_ui` has the tab and the metrics."""

    def show(self, text: str) -> None:
        """Show this from now on."""

    def close(self) -> None:
        """Take the part away."""


class PartKeeper:
    """Keeps a part up to date; the loop only says that it came round, and waits for nothing.

    What is described has a version, and is described again only when that is another one.
    """

    def __init__(
        self,
        application: str,
        what: str,
        open_part: Callable[[], UIPart],
        describe: Callable[[], str],
        version: Callable[[], str],
    ) -> None:
        self._application, self._what, self._open = application, what, open_part
        self._describe, self._version = describe, version
        self._told = ""
        self._news, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-ui-{what}", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
        except RuntimeError as error:
            log.debug("%s: no %s in the Spark UI: %s", self._application, self._what, error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=CLOSE_SECONDS)

    def tell(self) -> None:
        """Have it shown if there is something new."""
        version = self._version()
        if version != self._told:
            self._told = version
            self._news.set()

    def _run(self) -> None:
        try:
            part = self._open()
        except Exception as error:
            known = isinstance(error, PenstockError)
            told = "%s: no %s in the Spark UI: %s"
            log.debug(told, self._application, self._what, error, exc_info=not known)
            return
        try:
            while not self._ended.is_set():
                part.show(self._describe())
                self._news.wait()
                self._news.clear()
            part.close()
        except PenstockError as error:
            log.debug("%s: the Spark UI's %s cannot be renewed: %s", self._application, self._what, error)
        except Exception:
            told = "%s: the Spark UI's %s cannot be renewed"
            log.warning(told, self._application, self._what, exc_info=True)


def serves_prometheus(conf: Mapping[str, str]) -> bool:
    """Tell whether Spark itself serves metrics to Prometheus on the port of its UI, as it does by default."""
    servlet = any(
        key.startswith("spark.metrics.conf.") and value.endswith(".PrometheusServlet")
        for key, value in conf.items()
    )
    return servlet or conf.get("spark.ui.prometheus.enabled", "true").strip().lower() == "true"


def render_tab(status: Mapping[str, Any]) -> str:
    """Write a status as markup: a few lines, and the last decisions with their reasons; all is escaped."""
    lines = [("state", describe_pace(status)), *list_essentials(status)]
    shown = "".join(
        f'<tr><th scope="row">{_text(label)}</th><td>{_text(text)}</td></tr>' for label, text in lines
    )
    decisions = list(reversed(status.get("decisions") or ()))[:DECISIONS_SHOWN]
    said = _render_decisions(decisions) if decisions else "<p>No decision was taken yet.</p>"
    table = f'<table class="table table-bordered table-sm"><tbody>{shown}</tbody></table>'
    as_of = f"<p>As of {_clock(status.get('now'))}; load the page again for what came since.</p>"
    return f'<div class="penstock">{table}<h4>Last decisions</h4>{said}{as_of}</div>'


def _render_decisions(decisions: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        "<tr>"
        f"<td>{_clock(one.get('at'))}</td><td>{_text(str(one.get('kind', '')).replace('-', ' '))}</td>"
        f"<td>{_text(_describe_change(one))}</td><td>{_text(one.get('reason', ''))}</td>"
        f"<td>{_text((one.get('outcome') or {}).get('status', ''))}</td></tr>"
        for one in decisions
    )
    heads = "".join(
        f'<th scope="col">{name}</th>' for name in ("time", "decision", "executors", "why", "ended")
    )
    return (
        '<table class="table table-striped table-sm">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _describe_change(decision: Mapping[str, Any]) -> str:
    if decision.get("bins"):
        return f"{count(decision['bins'])} bins"
    after = decision.get("to")
    return "" if after is None else f"{count(decision.get('from'))} → {count(after)}"


def _clock(at: float | None) -> str:
    return "–" if at is None else datetime.fromtimestamp(at).strftime("%H:%M:%S")


def _text(value: object) -> str:
    return escape(cut_text(str(value), LONGEST_TEXT))
