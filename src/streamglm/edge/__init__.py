"""HTTP in, server-sent events out. Knows the engine by its protocol: no torch, pages or ranks."""
