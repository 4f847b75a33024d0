"""What people look at: the live view in the terminal, the HTML page, the lists of actions."""
