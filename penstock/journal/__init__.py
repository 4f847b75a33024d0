"""What was seen, decided and done, kept where a restart and a reader can find it."""
