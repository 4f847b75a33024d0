"""Findings about an application: failed work, stragglers, idle time, and what to do about each."""
