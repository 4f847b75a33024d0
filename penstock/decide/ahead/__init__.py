"""A controller that plans over the time a change takes: the least size whose risk of being short is small."""
