"""The lake: the only way in and out of the tables."""
