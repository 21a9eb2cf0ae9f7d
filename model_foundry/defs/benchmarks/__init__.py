"""Benchmarks: sweeps, what they show, and whether anything got worse."""
