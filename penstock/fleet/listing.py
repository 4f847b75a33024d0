"""A fleet as a list to search, sort and page through: pure, columns in memory, a hundred thousand rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.errors import BadInput
from penstock.fleet.status import GIB, HOUR, find_lack, find_spare, is_undersized, read_added
from penstock.units.texts import cut_text

PAGE_ROWS = 50
MOST_PAGE_ROWS = 500
LONGEST_SEARCH = 200
LONGEST_TEXT = 200
"""Characters of a foreign name or reason that are shown."""
MOST_TEAMS = 25
SEPARATORS = r"[/.:_\- ]"
"""A team is what stands in an application's name before the first of these."""
NUMBERS = (
    "at", "parallelism", "needed_parallelism", "allocated_cores", "spare_cores", "allocated_gib", "spare_gib",
    "missing_executors", "missing_gib", "starved", "in_flight",
)  # fmt: skip
TEXTS = ("application", "team", "rule")
SHOWS = ("all", "undersized", "spare", "decided", "silent")

Plain = dict[str, Any]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Question:
    """A page of the list: which applications, in which order, which part."""

    search: str = ""
    show: str = "all"
    sort: str = "spare_gib"
    descending: bool = True
    page: int = 1
    rows: int = PAGE_ROWS


def parse_question(given: Mapping[str, str]) -> Question:
    """Read a question from the parameters of an address; BadInput names the one that is wrong."""
    show, sort, order = given.get("show", "all"), given.get("sort", "spare_gib"), given.get("order", "desc")
    for name, value, known in (
        ("show", show, SHOWS), ("sort", sort, (*TEXTS, *NUMBERS)), ("order", order, ("asc", "desc")),
    ):  # fmt: skip
        if value not in known:
            raise BadInput(f"{name}: {value[:LONGEST_TEXT]!r} is none of {', '.join(known)}")
    search = given.get("search", "").strip()
    if len(search) > LONGEST_SEARCH:
        raise BadInput(f"search: {len(search)} characters are more than {LONGEST_SEARCH}")
    page, rows = _parse_count(given, "page", 1, 10**9), _parse_count(given, "rows", PAGE_ROWS, MOST_PAGE_ROWS)
    return Question(search, show, sort, order == "desc", page, rows)


def _parse_count(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and 1 <= int(text) <= most):
        raise BadInput(f"{name}: {text[:LONGEST_TEXT]!r} is not a whole number from 1 to {most}")
    return int(text)


@dataclass(frozen=True, slots=True)
class NameIndex:
    """The order, teams and search index of the names, which seldom change."""

    names: pa.Array
    folded: pa.Array
    rank: Whole
    teams: list[str]
    team: Whole

    @classmethod
    def of(cls, names: pa.Array) -> NameIndex:
        """Index the names."""
        folded = fold_case(names)
        parts = pc.split_pattern_regex(names, SEPARATORS, max_splits=1)
        has_team = pc.greater(pc.list_value_length(parts), 1)
        encoded = pc.if_else(has_team, pc.list_element(parts, 0), "").dictionary_encode()
        teams = encoded.dictionary.to_pylist()
        return cls(names, folded, rank_texts(folded), teams, encoded.indices.to_numpy().astype(np.int64))


def fold_case(texts: pa.Array) -> pa.Array:
    """Fold the case of texts as `str.casefold` does; Arrow does it quickly where all are ASCII."""
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return pc.ascii_lower(texts)
    return pa.array([str(text).casefold() for text in texts.to_pylist()], pa.string())


def rank_texts(texts: pa.Array) -> Whole:
    """Return the place of each text in their order; equal texts have places in the order of rows."""
    order = pc.sort_indices(texts).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


@dataclass(slots=True)
class FleetListing:
    """The columns of a fleet at one moment; an order that was asked for once is kept."""

    index: NameIndex
    numbers: Mapping[str, Floats]
    decided: Mapping[int, tuple[str, str]]
    """Row → the rule and the reason of the newest decision, where there was one."""
    undersized: Flags
    _orders: dict[tuple[str, bool], Whole] = field(default_factory=dict)

    @classmethod
    def of(
        cls, table: pa.Table, decisions: Sequence[Mapping[str, Any]], former: FleetListing | None = None
    ) -> FleetListing:
        """Take the columns of a status and the newest decision on each; `former` spares an index."""
        names = table["application"].combine_chunks()
        known = former is not None and former.index.names.equals(names)
        index = former.index if former is not None and known else NameIndex.of(names)
        decided = _find_newest(names, decisions)
        return cls(index, _take_numbers(table), decided, is_undersized(table))

    def page(self, question: Question, now: float) -> Plain:
        """Return one page: its rows as plain data, and how many match in all."""
        order, chosen = self._order(question.sort, question.descending), self._choose(question, now)
        matching = order[chosen[order]] if chosen is not None else order
        pages = max(1, -(-len(matching) // question.rows))
        page = min(question.page, pages)
        places = matching[(page - 1) * question.rows : page * question.rows]
        return {
            "rows": [self._row(int(place), now) for place in places],
            "matching": len(matching),
            "of": len(order),
            "page": page,
            "pages": pages,
        }

    def find(self, name: str, now: float) -> Plain | None:
        """Return the row of one application; None where there is none of this name."""
        place = pc.index(self.index.names, name).as_py()
        return None if place < 0 else self._row(place, now)

    def sum_teams(self, now: float) -> Plain:
        """Return what each team holds and has to spare, the most wasteful first; silent ones not counted."""
        heard = self.numbers["at"] >= now - HOUR
        team, count = self.index.team[heard], len(self.index.teams)
        sums = {
            name: np.bincount(team, self.numbers[name][heard], count)
            for name in ("allocated_cores", "spare_cores", "allocated_gib", "spare_gib")
        }
        sums["applications"] = np.bincount(team, minlength=count)
        sums["undersized"] = np.bincount(team, self.undersized[heard], count)
        order = np.lexsort((-sums["spare_cores"], -sums["spare_gib"]))
        order = order[sums["applications"][order] > 0]
        rows = [
            {"team": shorten(self.index.teams[place]), **{name: float(sums[name][place]) for name in sums}}
            for place in order[:MOST_TEAMS].tolist()
        ]
        return {"teams": rows, "of": len(order)}

    def _order(self, sort: str, descending: bool) -> Whole:
        """Return all rows in this order, equal ones by name; what is not known comes last either way."""
        known = self._orders.get((sort, descending))
        if known is None:
            key = self._key(sort)
            known = np.lexsort((self.index.rank, -key if descending else key))
            self._orders[sort, descending] = known
        return known

    def _key(self, sort: str) -> Floats:
        if sort == "application":
            return self.index.rank.astype(np.float64)
        if sort == "team":
            place = {team: rank for rank, team in enumerate(sorted(set(self.index.teams) - {""}))}
            ranks = np.array([place.get(team, np.nan) for team in self.index.teams], np.float64)
            by_team: Floats = ranks[self.index.team]
            return by_team
        if sort == "rule":
            place = {
                rule: rank for rank, rule in enumerate(sorted({rule for rule, _ in self.decided.values()}))
            }
            by_rule: Floats = np.full(len(self.index.names), np.nan)
            by_rule[list(self.decided)] = [place[rule] for rule, _ in self.decided.values()]
            return by_rule
        return self.numbers[sort]

    def _choose(self, question: Question, now: float) -> Flags | None:
        """Tell which rows are asked for; None where all are."""
        chosen: Flags | None = None
        if question.search:
            needle = question.search.casefold()
            chosen = pc.match_substring(self.index.folded, needle).to_numpy(zero_copy_only=False)
        if question.show != "all":
            shown = self._flag(question.show, now)
            chosen = shown if chosen is None else chosen & shown
        return chosen

    def _flag(self, show: str, now: float) -> Flags:
        heard: Flags = self.numbers["at"] >= now - HOUR
        match show:
            case "undersized":
                return self.undersized & heard
            case "spare":
                return heard & ((self.numbers["spare_cores"] > 0) | (self.numbers["spare_gib"] > 0))
            case "decided":
                decided = np.zeros(len(heard), np.bool_)
                decided[list(self.decided)] = True
                return decided
        return ~heard

    def _row(self, place: int, now: float) -> Plain:
        name, (rule, reason) = self.index.names[place].as_py(), self.decided.get(place, ("", ""))
        return {
            "application": shorten(name),
            "is_whole": len(name) <= LONGEST_TEXT,
            "team": shorten(self.index.teams[self.index.team[place]]),
            **{one: float(self.numbers[one][place]) for one in NUMBERS},
            "rule": shorten(rule),
            "reason": shorten(reason),
            "undersized": bool(self.undersized[place]),
            "silent": bool(self.numbers["at"][place] < now - HOUR),
        }


def shorten(text: str) -> str:
    """Cut a foreign text to what is shown."""
    return cut_text(text, LONGEST_TEXT)


def _take_numbers(table: pa.Table) -> dict[str, Floats]:
    columns = {
        name: table[name].to_numpy().astype(np.float64)
        for name in ("at", "parallelism", "needed_parallelism", "allocated_cores", "in_flight")
    }
    return {
        **columns,
        "spare_cores": find_spare(table, "cores"),
        "allocated_gib": table["allocated_bytes"].to_numpy() / GIB,
        "spare_gib": find_spare(table, "bytes") / GIB,
        "missing_executors": np.maximum(find_lack(table), 0.0),
        "missing_gib": read_added(table, "missing_bytes") / GIB,
        "starved": read_added(table, "starved"),
    }


def _find_newest(names: pa.Array, decisions: Sequence[Mapping[str, Any]]) -> dict[int, tuple[str, str]]:
    """Return the rule and the reason of the newest decision on each application, by its row."""
    newest = {str(one["application"]): one for one in sorted(decisions, key=lambda one: float(one["at"]))}
    decided = [(str(one["rule"]), str(one["reason"])) for one in newest.values()]
    at = pc.index_in(names, pa.array(newest, pa.string())).fill_null(-1).to_numpy()
    return {place: decided[at[place]] for place in np.flatnonzero(at >= 0).tolist()}
