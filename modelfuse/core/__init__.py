"""Core: unit matrices, assignment, averages, and the engine that loops over groups."""
