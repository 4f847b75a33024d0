"""Rows of the journal's tables become records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.dataflow.summary import QuerySummary
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect
from penstock.journal.records import ActionRecord, DecisionRecord, ObservationRecord, Plain


def _queries(plain: list[Plain]) -> tuple[QuerySummary, ...]:
    return tuple(QuerySummary(**one) for one in plain)


def observation_from(row: Mapping[str, Any]) -> ObservationRecord:
    """An observation as it was written."""
    return ObservationRecord(
        observation_id=row["id"],
        application=row["application"],
        at=row["at"],
        start=row["start"],
        parallelism=row["parallelism"],
        slots=row["slots"],
        queries=_queries(row["queries"]),
        warnings=tuple(row["warnings"]),
    )


def decision_from(row: Mapping[str, Any]) -> DecisionRecord:
    """A decision as it was written."""
    return DecisionRecord(
        decision_id=row["id"],
        application=row["application"],
        policy=row["policy"],
        first_at=row["first_at"],
        last_at=row["last_at"],
        count=row["count"],
        answer=row["answer"],
        verdict=row["verdict"],
    )


def _counts(given: Mapping[str, Any]) -> dict[str, int]:
    """Units with their counts; a setting that is a whole number counts, too."""
    return {name: int(value) for name, value in given.items() if str(value).isdecimal()}


def _settings(before: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Settings are kept as texts, units as numbers."""
    return {
        key: (before.get(key, ""), value)
        for key, value in planned.items()
        if isinstance(value, str) and isinstance(before.get(key, ""), str)
    }


def action_from(row: Mapping[str, Any]) -> ActionRecord:
    """An action joined with the decision that led to it."""
    return ActionRecord(
        action_id=row["id"],
        application=row["application"],
        decision_id=row["decision_id"],
        policy=row["policy"],
        intended_at=row["intended_at"],
        seen=_queries(row["seen"]),
        before=_counts(row["held_before"]),
        proposed=row["answer"].get("parallelism", {}),
        planned=_counts(row["planned"]),
        exact=row["exact"],
        reason=row["reason"],
        notes=tuple(row["verdict"].get("notes", ())),
        expected=ExpectedEffect(**row["expected"]),
        status=Status(row["status"]) if row["status"] else None,
        ended_at=row["ended_at"],
        requested=row["requested"],
        observed=row["observed"],
        seconds=row["seconds"],
        detail=row["detail"] or "",
        effect_at=row["effect_at"],
        measured=row["measured"],
        settings=_settings(row["held_before"], row["planned"]),
        judged=row["answer"].get("seen", {}),
    )
