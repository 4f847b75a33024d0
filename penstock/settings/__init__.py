"""All settings in one place: composed from sections, read from files, environment and Spark."""
