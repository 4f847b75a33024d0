"""The colours of charts, the same on every page."""

from __future__ import annotations

BLUE, GREEN, ORANGE, PURPLE, GREY, RED = "#3b82c4", "#2a9d74", "#d9822b", "#8a6fc1", "#8b95a1", "#c94f4f"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#4aa3a2", "#b0762f", "#6d7bd0")
"""The colours of several lines in one chart, in this order."""
CAUSE_COLOURS = {
    "run": GREEN,
    "gc": "#7cc4a4",
    "deserialise": "#9fd3c7",
    "fetch": BLUE,
    "shuffle write": "#7fb0df",
    "state load": PURPLE,
    "state commit": "#b39ddb",
    "result": "#5c9ead",
    "scheduling": ORANGE,
    "batch log": "#e9b44c",
    "program": RED,
    "start-up": "#d88c8c",
    "executors": "#a1887f",
    "trigger": "#c3cad2",
    "unknown": GREY,
}
"""Tasks are green, blue and purple, the driver is warm, waiting is grey: warm batches need no executors."""
