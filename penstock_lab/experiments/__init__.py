"""Experiments: each runs on a cluster, in the simulator or alone, and returns rows."""
