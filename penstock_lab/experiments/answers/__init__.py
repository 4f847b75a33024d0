"""Made event logs with a known cause: a small model of a cluster, applications, causes, and what is asked."""
