"""The word count of Dhalion and DS2: as one query, and as two functions."""
