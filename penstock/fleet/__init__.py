"""Many applications at a time: the policies over columns, one PySpark job, and the agents it talks to."""
