"""Web searches, and the sources that answers are given."""
