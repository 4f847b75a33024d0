"""The activity graph of a trace, the critical participation of its edges, and how large traces are cut."""
