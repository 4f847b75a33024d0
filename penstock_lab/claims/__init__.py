"""Claims: pure functions from an experiment's rows to verdicts, by paper, and those of Penstock itself."""
