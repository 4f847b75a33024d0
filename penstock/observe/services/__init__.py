"""Remote services: what they publish, how it is scraped, and the board that policies read."""
