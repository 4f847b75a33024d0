"""An action in plain words: what was seen, proposed, expected, changed, done, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo

from penstock.dataflow.summary import QuerySummary
from penstock.journal.records import ActionRecord


def explain(record: ActionRecord, zone: tzinfo | None = None) -> str:
    """Tell one action from its intent to its effect, a line for each part; without a zone times are local."""
    by = f" by policy {record.policy}" if record.policy else ""
    title = (
        f"Action {record.action_id} on {record.application}{by}, {_write_moment(record.intended_at, zone)}"
    )
    return "\n".join([title, *(f"  {part:<10} {text}" for part, text in _tell_parts(record))])


def _tell_parts(record: ActionRecord) -> Iterator[tuple[str, str]]:
    for query in record.seen:
        yield "Seen", _tell_query(query)
    if not record.seen:
        yield "Seen", "no observation was recorded before this action"
    if record.settings:
        yield from _tell_resize(record)
        return
    yield "Held", _list_sizes(record.before)
    yield (
        "Proposed",
        f"{_list_sizes(record.proposed or record.planned)}{_tell_exact(record)}: {record.reason}",
    )
    yield "Guardrails", _tell_guardrails(record)
    yield "Expected", _tell_expected(record)
    yield "Planned", _list_sizes(record.planned)
    if record.status is not None:
        yield "Requested", _list_sizes(record.requested or {})
        yield "Observed", _list_sizes(record.observed or {})
    yield "Ended", _tell_end(record) or "not yet: no outcome is written; after a crash the next run closes it"
    yield "Effect", _tell_effect(record)


def _tell_resize(record: ActionRecord) -> Iterator[tuple[str, str]]:
    """Tell an action on Spark's settings, which ends with a restart."""
    for key, (before, after) in record.settings.items():
        yield "Setting", f"{key} {before or 'unset'} → {after}"
    if record.judged:
        yield "Metrics", _list_figures(record.judged)
    yield "Because", record.reason
    yield "Guardrails", _tell_guardrails(record)
    yield "Expected", _tell_expected(record)
    yield "Ended", _tell_end(record) or "not yet: no outcome is written"
    yield "Effect", _tell_effect(record)


def _tell_query(query: QuerySummary) -> str:
    rates = (
        f"query {query.name}: {_write_number(query.offered_per_second)} records/s offered, "
        f"{_write_number(query.observed_per_second)} records/s read, "
        f"backlog of {_write_number(query.backlog_records)} records"
    )
    if query.batch_seconds is None:
        return f"{rates}, no batch finished"
    every = f" every {_write_number(query.period_seconds)} s" if query.period_seconds else ""
    return f"{rates}, batches of {_write_number(query.batch_seconds)} s{every}"


def _tell_exact(record: ActionRecord) -> str:
    if not record.exact:
        return ""
    needs = ", ".join(f"{_write_number(need)} {unit}" for unit, need in record.exact.items())
    return f" (exact need {needs})"


def _tell_guardrails(record: ActionRecord) -> str:
    if record.notes:
        return "; ".join(record.notes)
    if record.proposed and record.proposed != record.planned:
        return f"changed {_list_sizes(record.proposed)} to {_list_sizes(record.planned)}"
    return "let it pass unchanged"


def _tell_expected(record: ActionRecord) -> str:
    figures = _list_figures(record.expected.figures)
    return ": ".join(part for part in (record.expected.summary, figures) if part) or "nothing was stated"


def _tell_end(record: ActionRecord) -> str:
    if record.status is None:
        return ""
    detail = f": {record.detail}" if record.detail else ""
    return f"{record.status.value} after {_write_number(record.seconds or 0.0)} s{detail}"


def _tell_effect(record: ActionRecord) -> str:
    if record.measured is None:
        pending = record.status is None or record.effect_at is None
        return "not measured yet" if pending else "nothing was measured"
    expected = record.expected.figures
    compared = [
        _compare(name, expected[name], value) for name, value in record.measured.items() if name in expected
    ]
    others = _list_figures({name: value for name, value in record.measured.items() if name not in expected})
    return "; ".join(part for part in (*compared, others) if part) or "nothing was measured"


def _compare(name: str, expected: float, measured: float) -> str:
    text = f"{_label(name)} {_write_number(measured)} against {_write_number(expected)} expected"
    if not expected:
        return text
    return f"{text} ({(measured - expected) / abs(expected):+.0%})"


def _list_figures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{_label(name)} {_write_number(value)}" for name, value in figures.items())


def _label(name: str) -> str:
    return name.replace("_", " ")


def _list_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {unit}" for unit, count in sizes.items()) or "nothing known"


def _write_number(value: float | None) -> str:
    if value is None:
        return "an unknown number of"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _write_moment(at: float, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(at).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
