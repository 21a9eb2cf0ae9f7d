"""The ``foundry`` command: one module a command, thin over the domain. Imports no dagster."""
