"""Claims of DS2: Three steps is all you need (OSDI 2018)."""
