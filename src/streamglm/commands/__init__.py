"""One file a command: arguments in, exit status out."""
