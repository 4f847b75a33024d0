"""The graph of a pipeline for the terminal: from the topics outside along functions to the last topics."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from penstock.pipeline.drawing import Figures, function_texts, topic_texts
from penstock.pipeline.layout import Layout


def tree(layout: Layout, figures: Figures, title: str) -> Tree:
    """Every function once with what follows it; where ways meet, the others only name it."""
    root, drawn = Tree(Text(title, style="bold"), guide_style="dim"), set[str]()
    for topic in layout.sources:
        _topic(root, layout, figures, topic, drawn)
    return root


def _topic(branch: Tree, layout: Layout, figures: Figures, topic: str, drawn: set[str]) -> None:
    name, *said = [text for _, text in topic_texts(layout, figures, topic) if text]
    below = branch.add(_line(name, said, "", "cyan"))
    if topic in drawn:
        return
    drawn.add(topic)
    for function in layout.readers(topic):
        _function(below, layout, figures, function, drawn)


def _function(branch: Tree, layout: Layout, figures: Figures, name: str, drawn: set[str]) -> None:
    heading, *said = [text for _, text in function_texts(name, figures.get(name, {}))]
    if name in drawn:
        branch.add(_line(name, ["as above"], "▸ ", "dim"))
        return
    drawn.add(name)
    below = branch.add(_line(heading, said, "▸ ", "red" if figures.get(name, {}).get("error") else "bold"))
    writes = layout.writes[name]
    if writes is not None:
        _topic(below, layout, figures, writes, drawn)


def _line(name: str, said: list[str], mark: str, style: str) -> Text:
    return Text.assemble((mark, "dim"), (name, style), ("  " + ", ".join(said) if said else "", ""))
