"""Headline results of the papers, run again on this machine, beside what was published."""
