"""Faults: the matrix of faults and parts, a trial for each cell that can occur, and the hour of chaos."""
