"""The commands, one file for each errand; `cli.py` puts them together."""
