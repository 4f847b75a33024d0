"""What was seen, decided and done, and why: written before and after every effect, readable at any time."""
