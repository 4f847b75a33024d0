"""What an application needs of its machine, checked before Spark is up."""
