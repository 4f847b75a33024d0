"""One summary from those of several stretches of time, where all of it does not fit into memory at once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.diagnose.participation import Instrumentation
from penstock.diagnose.summary import Profile, Summary

Key = TypeVar("Key", bound=Hashable)


def joined(parts: Sequence[Summary]) -> Summary:
    """Shares are means over the parts by the lengths of their critical paths; times and counts add up.

    The number of paths through all parts is not known, and is not a number.
    """
    weights = [part.length_us for part in parts]

    def mean(name: str) -> dict[str, float]:
        return mixed((getattr(part, name), weight) for part, weight in zip(parts, weights, strict=True))

    channels = mixed(
        ({(source, target): share for source, target, share in part.communication}, weight)
        for part, weight in zip(parts, weights, strict=True)
    )
    return Summary(
        start_us=parts[0].start_us,
        end_us=parts[-1].end_us,
        length_us=sum(weights),
        paths_log10=math.nan,
        activity=mean("activity"),
        worker=mean("worker"),
        operator=mean("operator"),
        instances={
            name: max(part.instances.get(name, 0) for part in parts)
            for name in dict.fromkeys(name for part in parts for name in part.instances)
        },
        work=mixed((part.work, weight) for part, weight in zip(parts, weights, strict=True)),
        communication=[
            (*channel, share) for channel, share in sorted(channels.items(), key=lambda item: -item[1])
        ],
        profile=Profile(
            _added(part.profile.activity for part in parts),
            _added(part.profile.worker for part in parts),
            _added(part.profile.work for part in parts),
        ),
        instrumentation=_counted([part.instrumentation for part in parts]),
        events=sum(part.events for part in parts),
    )


def mixed(weighted: Iterable[tuple[Mapping[Key, float], float]]) -> dict[Key, float]:
    """The mean of shares by weight; a share that is missing counts as none."""
    given = list(weighted)
    total = sum(weight for _, weight in given) or 1.0
    return _added({key: share * weight / total for key, share in shares.items()} for shares, weight in given)


def _added(shares: Iterable[Mapping[Key, float]]) -> dict[Key, float]:
    total: dict[Key, float] = {}
    for each in shares:
        for key, value in each.items():
            total[key] = total.get(key, 0.0) + value
    return total


def _counted(parts: Sequence[Instrumentation]) -> Instrumentation:
    return Instrumentation(
        uncaused_events=sum(part.uncaused_events for part in parts),
        silent_spans=sum(part.silent_spans for part in parts),
        silent_us=sum(part.silent_us for part in parts),
    )
