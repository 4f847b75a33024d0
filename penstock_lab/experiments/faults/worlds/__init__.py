"""Applications in virtual time that a real loop steers."""
