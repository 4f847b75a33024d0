"""DS2, for operators with instances of their own and for operators that share slots."""
