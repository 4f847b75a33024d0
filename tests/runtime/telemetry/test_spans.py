"""Spans, taken by a real web server that reads OTLP's protobuf."""

from __future__ import annotations

from contextlib import closing

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.runtime.telemetry.events import Event
from penstock.runtime.telemetry.spans import SpanTeller
from tests.fakes import FixedPolicy, a_scale
from tests.runtime.test_attach import Bench
from tests.waiting import wait_for
from tests.web_receiver import Receiver, web_receiver

WHO = {"application": "app-1", "name": "words"}


def read_spans(receiver: Receiver) -> list[Span]:
    """All spans that came, as any collector reads them."""
    requests = [ExportTraceServiceRequest.FromString(body) for _, _, body in receiver.received]
    return [
        span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def plain(span: Span) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_an_action_hangs_below_its_decision_and_its_effect_below_it() -> None:
    events = [
        Event("decision", 10.0, "scale-out: late", {"decision": "scale-out", "reason": "late"}),
        Event(
            "action",
            10.0,
            "scale out 2 → 4",
            {"action": 7, "change": "scale-out", "planned": {"executors": 4}},
        ),
        Event(
            "outcome", 15.5, "failed", {"action": 7, "status": "failed", "seconds": 5.5, "detail": "no room"}
        ),
        Event("effect", 40.0, "as expected", {"action": 7, "measured": {"batch_seconds": 3.0}}),
        Event("pause", 41.0, "paused: by hand"),
    ]
    with web_receiver() as receiver:
        with closing(SpanTeller(receiver.url + "/v1/traces", WHO)) as spans:
            for event in events:
                spans.put(event)
        decision, action, effect = read_spans(receiver)
        path, _, body = receiver.received[0]
    assert path == "/v1/traces"
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named["service.name"] == "words" and named["penstock.application"] == "app-1"
    assert [one.name for one in (decision, action, effect)] == [
        "decision scale-out",
        "action scale-out",
        "effect",
    ]
    assert action.parent_span_id == decision.span_id and effect.parent_span_id == action.span_id
    assert len({one.trace_id for one in (decision, action, effect)}) == 1
    assert (action.start_time_unix_nano, action.end_time_unix_nano) == (10_000_000_000, 15_500_000_000)
    assert (effect.start_time_unix_nano, effect.end_time_unix_nano) == (15_500_000_000, 40_000_000_000)
    assert plain(action)["penstock.planned.executors"] == 4 and plain(action)["penstock.detail"] == "no room"
    assert (action.status.code, action.status.message) == (2, "no room"), "an error"
    assert plain(effect)["penstock.measured.batch_seconds"] == 3.0


def test_a_running_autopilot_sends_them(bench: Bench) -> None:
    bench.source.seconds = 0.05
    with web_receiver() as receiver:
        handle = bench.assembled(FixedPolicy(a_scale(5)))
        handle.settings = handle.settings.change(otlp_endpoint=receiver.url + "/v1/traces")
        handle.start()
        wait_for("an effect", lambda: handle.status()["totals"]["prediction_errors"])
        handle.detach()
        names = wait_for("spans", lambda: {span.name for span in read_spans(receiver)})
    assert {"decision scale-out", "action scale-out", "effect"} <= names


def test_no_redirect_is_followed() -> None:
    with web_receiver(302) as receiver:
        with closing(SpanTeller(receiver.url + "/v1/traces", WHO)) as spans:
            spans.put(Event("decision", 1.0, "hold", {"decision": "hold"}))
        assert {path for path, _, _ in receiver.received} == {"/v1/traces"}
