"""The journal of what was seen, decided and done, and why; written before and after every effect."""
