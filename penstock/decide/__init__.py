"""Policies propose; the manager and the guardrails accept or reject."""
