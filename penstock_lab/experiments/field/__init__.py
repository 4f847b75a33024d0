"""Ordinary jobs in the field: the plan of trials, their ground, what was seen of them, and their rows."""
