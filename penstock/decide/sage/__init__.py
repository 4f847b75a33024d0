"""Sage: memory, heap, CPU and parallelism sized by prioritised rules."""
