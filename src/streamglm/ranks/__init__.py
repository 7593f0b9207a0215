"""One process a device: frames in, steps executed, tokens out. Only the server process decides."""
