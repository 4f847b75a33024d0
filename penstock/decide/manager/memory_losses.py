"""A guardrail that keeps the size while executors die for want of memory, and the words that say so.

More executors give none of them more memory, and fewer give each more to hold. What helps is another size of
executor, which is a setting.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.dataflow.window import ApplicationWindow, MemoryLoss
from penstock.decide.manager.guardrails import Opinion, Situation
from penstock.decide.policy import IDLE_SECONDS, Scale
from penstock.decide.verdict import Accepted, Rejected, Verdict


class SizeIsNotMemory:
    """Rejects changes of size after executors were lost for want of memory, unless there is no input."""

    name = "lost-for-memory"

    def apply(self, scale: Scale, situation: Situation) -> Opinion:
        """Keep what is held while losses are recent."""
        told = describe_losses(situation.window)
        if told is None or IDLE_SECONDS in scale.expected.figures:
            return scale
        return Rejected(self.name, told)


def describe_losses(window: ApplicationWindow) -> str | None:
    """Name the executor that was last lost for want of memory, and what to change; None if none was."""
    if not window.memory_losses:
        return None
    last, count = window.memory_losses[-1], len(window.memory_losses)
    seconds = max(0.0, window.end - last.at)
    others = f", the last of {count} in a few minutes" if count > 1 else ""
    return f"executor {last.executor} on {last.host} {_describe_end(last)} {seconds:.0f} s ago{others}"


def _describe_end(loss: MemoryLoss) -> str:
    if loss.out_of_heap:
        return "ran out of heap (raise spark.executor.memory; more executors would not help)"
    return (
        "was killed, as hosts do for memory (raise spark.executor.memoryOverhead or spark.executor.memory, "
        "or lower spark.executor.cores; more executors would not help)"
    )


def tell_losses(verdict: Verdict, window: ApplicationWindow) -> Verdict:
    """Add recent losses to a verdict that does not name them."""
    told = describe_losses(window)
    if told is None or told in verdict.reason:
        return verdict
    if isinstance(verdict, Accepted):
        return replace(verdict, notes=(*verdict.notes, told))
    return replace(verdict, reason=f"{verdict.reason}; {told}")
