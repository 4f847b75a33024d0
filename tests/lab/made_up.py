"""Made-up batches, migrations and actions, for tests of what is made of them."""

from penstock.decide.policy import ExpectedEffect
from penstock.journal.records import ActionRecord
from penstock_lab.claims.claim import Judged
from penstock_lab.experiments.batches import BatchSeen
from penstock_lab.experiments.moving.key_count import KeyCountPhase
from penstock_lab.report.page import build_page
from penstock_lab.report.runner import PartOutcome, PartStatus


def batches(*seconds, start=0.0, every=10.0, records=360):
    return tuple(
        BatchSeen(start + every * number, taken, round(records), round(records) * (number + 1))
        for number, taken in enumerate(seconds)
    )


def a_phase(system, *moving, keys=1600, bins=16, steady=(1.0, 1.0, 1.0), **more):
    """A migration from second 50 to 60, with these batches while it lasts and steady ones before."""
    values = {
        "case": f"{keys:,} keys, {bins} bins",
        "start": 50.0,
        "end": 60.0,
        "steady": batches(*steady),
        "batches": batches(*moving, start=50.0),
        "bytes_moved": 64,
        "steady_rss_bytes": 1000.0,
        "peak_rss_bytes": 1050.0,
    }
    return KeyCountPhase(system=system, keys=keys, bins=bins, **{**values, **more})


def an_action(at, sizes, seconds=10.0, predicted=None, **more):
    figures = {} if predicted is None else {"batch_seconds": predicted}
    return ActionRecord(
        action_id=1, application="app", decision_id=1, policy="ds2", intended_at=at, seen=(), before={},
        proposed=sizes, planned=sizes, exact={}, notes=(), expected=ExpectedEffect("", figures),
        **{"reason": "", "ended_at": at + seconds, **more},
    )  # fmt: skip


def draw_page(charts):
    """Draw charts as the report does, after they were written to its state and read again."""
    outcome = PartOutcome("one", "One", "figures", PartStatus.DONE, 1.0, True, result=Judged([], charts))
    kept = PartOutcome.from_json(outcome.to_json())
    assert kept.to_json() == outcome.to_json()
    text = build_page([kept], "a machine", "a day")
    assert text.count("Plotly.newPlot") == len(charts)
    return text
