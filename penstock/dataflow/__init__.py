"""The pure model of a streaming dataflow: graph, metric windows, rates, costs and slots."""
