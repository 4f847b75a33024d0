"""The parts as their users run them on the proving ground."""
