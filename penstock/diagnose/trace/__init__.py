"""Traces: the activities and messages of workers, from event logs or from Parquet files."""
