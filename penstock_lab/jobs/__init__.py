"""Ordinary PySpark jobs, with feeds of their input and the right answers."""
