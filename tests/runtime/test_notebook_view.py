"""A handle in a notebook: shown once, written over while it changes, left alone at the end."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.notebook_view import LiveTable, find_notebook


class Notebook:
    """What a notebook's output holds, write by write."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def show(self, markup: str) -> Callable[[str], None]:
        self.written.append(markup)
        return self.written.append


def test_it_is_written_over_when_it_changes_and_a_last_time_at_the_end() -> None:
    texts, lives = iter("aabbc"), iter((True, True, True, False))
    notebook = Notebook()
    table = LiveTable(lambda: next(texts), lambda: next(lives), every=0.001)
    table.start(notebook.show).join(10)
    assert notebook.written == ["a", "b", "c"]


def test_a_table_that_another_one_follows_is_left_as_it_is() -> None:
    notebook = Notebook()
    table = LiveTable(lambda: "a", lambda: True, every=60)
    keeping = table.start(notebook.show)
    table.stop()
    keeping.join(10)
    assert not keeping.is_alive() and notebook.written == ["a"]


def test_without_a_notebook_there_is_none() -> None:
    assert find_notebook() is None
