"""Nexmark: its events, its streams and its queries."""
