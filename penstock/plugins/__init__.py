"""Policies from elsewhere: their base, how installed ones are found, and the contract of all policies."""
