"""Applications with a known need, sized by Sage's rules: the trials, the search, the job and what it eats."""
