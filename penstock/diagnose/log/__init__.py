"""Spark's event logs: find, decompress and parse them, also while they grow."""
