"""Streaming workloads as PySpark code, usable with and without the autopilot."""
