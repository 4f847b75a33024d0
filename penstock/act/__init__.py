"""An accepted proposal becomes ordered, verified, reversible steps."""
