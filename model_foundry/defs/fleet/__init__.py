"""The fleet in Dagster: what was measured of it, and what that speaks for."""
