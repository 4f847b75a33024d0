"""An action in plain words: what was seen, proposed, expected, changed, done, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo

from penstock.dataflow.summary import QuerySummary
from penstock.journal.records import ActionRecord


def explain(record: ActionRecord, zone: tzinfo | None = None) -> str:
    """Tell one action from its intent to its effect, a line for each part; without a zone times are local."""
    by = f" by policy {record.policy}" if record.policy else ""
    title = f"Action {record.action_id} on {record.application}{by}, {_moment(record.intended_at, zone)}"
    lines = [title, *(f"  {part:<10} {text}" for part, text in _parts(record))]
    return "\n".join(lines)


def _parts(record: ActionRecord) -> Iterator[tuple[str, str]]:
    for query in record.seen:
        yield "Seen", _query(query)
    if not record.seen:
        yield "Seen", "no observation was recorded before this action"
    if record.settings:
        yield from _resized(record)
        return
    yield "Held", _sizes(record.before)
    yield "Proposed", f"{_sizes(record.proposed or record.planned)}{_exact(record)}: {record.reason}"
    yield "Guardrails", _guardrails(record)
    yield "Expected", _expected(record)
    yield "Planned", _sizes(record.planned)
    yield from _ending(record)
    yield "Effect", _effect(record)


def _resized(record: ActionRecord) -> Iterator[tuple[str, str]]:
    """An action on Spark's settings, which ends with a restart."""
    for key, (before, after) in record.settings.items():
        yield "Setting", f"{key} {before or 'unset'} → {after}"
    if record.judged:
        yield "Metrics", _figures(record.judged)
    yield "Because", record.reason
    yield "Guardrails", _guardrails(record)
    yield "Expected", _expected(record)
    if record.status is None:
        yield "Ended", "not yet: no outcome is written"
    else:
        detail = f": {record.detail}" if record.detail else ""
        yield "Ended", f"{record.status.value} after {_number(record.seconds or 0.0)} s{detail}"
    yield "Effect", _effect(record)


def _query(query: QuerySummary) -> str:
    rates = (
        f"query {query.name}: {_number(query.offered_per_second)} records/s offered, "
        f"{_number(query.observed_per_second)} records/s read, "
        f"backlog of {_number(query.backlog_records)} records"
    )
    if query.batch_seconds is None:
        return f"{rates}, no batch finished"
    every = f" every {_number(query.period_seconds)} s" if query.period_seconds else ""
    return f"{rates}, batches of {_number(query.batch_seconds)} s{every}"


def _exact(record: ActionRecord) -> str:
    if not record.exact:
        return ""
    needs = ", ".join(f"{_number(need)} {unit}" for unit, need in record.exact.items())
    return f" (exact need {needs})"


def _guardrails(record: ActionRecord) -> str:
    if record.notes:
        return "; ".join(record.notes)
    if record.proposed and record.proposed != record.planned:
        return f"changed {_sizes(record.proposed)} to {_sizes(record.planned)}"
    return "let it pass unchanged"


def _expected(record: ActionRecord) -> str:
    figures = _figures(record.expected.figures)
    return ": ".join(part for part in (record.expected.summary, figures) if part) or "nothing was stated"


def _ending(record: ActionRecord) -> Iterator[tuple[str, str]]:
    if record.status is None:
        yield "Ended", "not yet: no outcome is written; after a crash the next run closes it"
        return
    yield "Requested", _sizes(record.requested or {})
    yield "Observed", _sizes(record.observed or {})
    detail = f": {record.detail}" if record.detail else ""
    yield "Ended", f"{record.status.value} after {_number(record.seconds or 0.0)} s{detail}"


def _effect(record: ActionRecord) -> str:
    if record.measured is None:
        return (
            "not measured yet"
            if record.status is None or record.effect_at is None
            else "nothing was measured"
        )
    expected = record.expected.figures
    compared = [
        _compared(name, expected[name], value) for name, value in record.measured.items() if name in expected
    ]
    others = _figures({name: value for name, value in record.measured.items() if name not in expected})
    return "; ".join(part for part in (*compared, others) if part) or "nothing was measured"


def _compared(name: str, expected: float, measured: float) -> str:
    text = f"{_label(name)} {_number(measured)} against {_number(expected)} expected"
    if not expected:
        return text
    return f"{text} ({(measured - expected) / abs(expected):+.0%})"


def _figures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{_label(name)} {_number(value)}" for name, value in figures.items())


def _label(name: str) -> str:
    return name.replace("_", " ")


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {unit}" for unit, count in sizes.items()) or "nothing known"


def _number(value: float | None) -> str:
    if value is None:
        return "an unknown number of"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _moment(at: float, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(at).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
