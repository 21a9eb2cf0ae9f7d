"""Tests of the embedding lane."""
