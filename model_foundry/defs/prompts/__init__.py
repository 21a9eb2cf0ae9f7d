"""Prompts: partitions, inbox and completions, the sensor that asks for runs."""
