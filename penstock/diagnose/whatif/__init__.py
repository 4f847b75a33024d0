"""Forecasts: the tasks of an application, replayed on other slots and under other conditions."""
