"""Decisions from recorded rates, without an application."""
