"""Policies to compare with: Dhalion, DRS, dynamic allocation, thresholds and reactive rules."""
