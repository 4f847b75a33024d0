"""Metrics to scrape, notifications and spans of an autopilot; none is sent from within its loop."""
