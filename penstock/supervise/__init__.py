"""Owns the process of a driver: graceful stop, start with other settings, verified, or back to the old ones."""
