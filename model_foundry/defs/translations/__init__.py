"""Translated articles."""
