"""Durations and sizes as people write them, and the typed fields that settings are made of."""
