"""Forecasts: any policy, shown the rate that is expected once its change works."""
