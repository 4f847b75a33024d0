"""Everything that is drawn: the live view in the terminal, the HTML page, the lists of actions."""
