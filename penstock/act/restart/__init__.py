"""Supervised restarts of a driver: graceful stop, start with other settings, and back if these fail."""
