"""What is given for functions and topics, in Python or YAML; BadInput says where it is wrong, and how."""

from __future__ import annotations

import re

from penstock.durations import parse_duration
from penstock.errors import BadInput

DEAD_LETTERS = "{}.dead"
"""The topic of a function's dead letters; no function may write one of such a name."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def named(kind: str, name: object) -> str:
    """A name of a pipeline or function: it becomes part of paths, query names and pools."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{kind}: {name!r} is not a name of letters, digits, - and _ that starts with a letter"
        )
    return name


def topic_named(place: str, name: object) -> str:
    """A name of a topic, as Kafka has them, that can be a directory."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise BadInput(f"{place}: {name!r} is not a topic's name: letters, digits, ., - and _, no _ in front")
    return name


def written_topic(place: str, name: object) -> str | None:
    """The topic that a function writes, if it does."""
    if name is None:
        return None
    written = topic_named(place, name)
    if written.endswith(DEAD_LETTERS.format("")):
        raise BadInput(f"{place}: {written!r} is a name for dead letters")
    return written


def several(place: str, option: str, given: object) -> tuple[str, ...]:
    """One text or a list of them, none twice."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, tuple | list) or not all(isinstance(one, str) and one for one in texts):
        raise BadInput(f"{place}: {option} is {given!r}, not a name or a list of names")
    for number, one in enumerate(texts):
        if one in texts[:number]:
            raise BadInput(f"{place}: {option} names {one!r} twice")
    return tuple(texts)


def text(place: str, option: str, given: object) -> str | None:
    """A text, where there is one."""
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip():
        raise BadInput(f"{place}: {option} is {given!r}, not a text")
    return given


def limits(place: str, given: object) -> tuple[int, int]:
    """Least and most instances; a single number is both."""
    pair = (given, given) if isinstance(given, int) else given
    if isinstance(pair, tuple | list) and len(pair) == 2:
        least, most = pair
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in pair)
        if whole and 1 <= least <= most:
            return least, most
    raise BadInput(f"{place}: parallelism {given!r} is not a number or (least, most), from 1 on")


def seconds(place: str, option: str, given: object) -> float | None:
    """A duration above zero, where there is one."""
    try:
        found = None if given is None else parse_duration(given)
    except ValueError as error:
        raise BadInput(f"{place}: {option}: {error}") from None
    if found is not None and found <= 0:
        raise BadInput(f"{place}: {option} is {given!r}, not above 0")
    return found
