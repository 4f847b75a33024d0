"""A live Spark application becomes metric windows."""
