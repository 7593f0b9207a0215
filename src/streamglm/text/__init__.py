"""Messages to token ids and token ids to text. Pure: knows no HTTP, no torch, no engine."""
