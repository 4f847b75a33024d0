"""Spans over OTLP: one for each decision, action and effect, an action below the decision that led to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from penstock.errors import Unsupported
from penstock.runtime.telemetry.events import ACTION, DECISION, EFFECT, OUTCOME, ROLLBACK, Event

log = logging.getLogger(__name__)

MISSING = "otlp_endpoint needs OpenTelemetry: install penstock with its extra, penstock[otel]"
EXPORT_SECONDS = 5.0
SCHEDULE_MILLIS = 1000
CLOSING_SECONDS = 2.0
NANOSECONDS = 1e9
FAILURES = ("failed", "unknown")


class SpanTeller:
    """Sends spans from the library's own thread and bounded queue; `put` never waits.

    It has a provider of its own: what the job itself traces is left alone.
    """

    def __init__(
        self, endpoint: str, who: Mapping[str, str], schedule_millis: float = SCHEDULE_MILLIS
    ) -> None:
        try:
            import requests
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise Unsupported(MISSING) from None
        session = requests.Session()
        # a redirect would lead where no setting has allowed it
        session.max_redirects = 0
        exporter = OTLPSpanExporter(endpoint, timeout=EXPORT_SECONDS, session=session)
        known = {
            "service.name": who["name"] or who["application"],
            "penstock.application": who["application"],
        }
        self._provider = TracerProvider(resource=Resource.create(known), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=schedule_millis))
        self._trace, self._tracer = trace, self._provider.get_tracer("penstock")
        self._decision: Any = None
        self._begun: Event | None = None
        self._action: Any = None
        self._ended_at = 0.0

    def put(self, event: Event) -> None:
        """Make the spans that an event ends."""
        if event.kind == DECISION:
            name = f"decision {event.fields.get('decision', '')}"
            self._decision = self._make(name, event.at, event.at, event, parent=None)
        elif event.kind in (ACTION, ROLLBACK):
            self._begun = event
        elif event.kind == OUTCOME:
            self._end_action(event)
        elif event.kind == EFFECT:
            self._make("effect", self._ended_at or event.at, event.at, event, parent=self._action)

    def close(self) -> None:
        """Send what waits, for two seconds at most."""
        closing = threading.Thread(target=self._provider.shutdown, name="penstock-spans", daemon=True)
        closing.start()
        closing.join(CLOSING_SECONDS)

    def _end_action(self, outcome: Event) -> None:
        begun = self._begun or outcome
        name = f"{begun.kind} {begun.fields.get('change', '')}".strip() if self._begun else "action"
        told = Event(begun.kind, begun.at, begun.text, {**begun.fields, **outcome.fields})
        failed = outcome.fields.get("status") in FAILURES
        self._action = self._make(name, begun.at, outcome.at, told, self._decision, failed)
        self._begun, self._ended_at = None, outcome.at

    def _make(
        self, name: str, start: float, end: float, event: Event, parent: Any, failed: bool = False
    ) -> Any:
        """Make a span and return it, as the parent of others."""
        context = self._trace.set_span_in_context(parent) if parent is not None else None
        attributes = {"penstock.text": event.text, **_flatten("penstock", event.fields)}
        span = self._tracer.start_span(
            name, context=context, start_time=int(start * NANOSECONDS), attributes=attributes
        )
        if failed:
            span.set_status(self._trace.StatusCode.ERROR, str(event.fields.get("detail", "")))
        span.end(int(max(start, end) * NANOSECONDS))
        return span


def _flatten(prefix: str, fields: Mapping[str, Any]) -> dict[str, str | bool | int | float]:
    """Write nested fields under names with dots; what is no plain value is left out."""
    flat: dict[str, str | bool | int | float] = {}
    for key, value in fields.items():
        if isinstance(value, Mapping):
            flat |= _flatten(f"{prefix}.{key}", value)
        elif isinstance(value, str | bool | int | float):
            flat[f"{prefix}.{key}"] = value
    return flat
