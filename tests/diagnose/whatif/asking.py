"""Ask a log what would be under other conditions."""

from __future__ import annotations

from penstock.diagnose.whatif.scenarios import forecast, rehearse


def ask_what_if(log, slot_counts=(), host_cores=None):
    found = rehearse(log, host_cores)
    return forecast(log, found, slot_counts) if found else None
