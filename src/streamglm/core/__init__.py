"""The asyncio heart: lanes, admission, rounds. Decides, never computes; knows no torch, no HTTP."""
