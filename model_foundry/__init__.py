"""model_foundry: prompts arrive over NATS JetStream, run as Dagster assets, and are answered by your own model servers.

The domain lives in plain modules beside this file and imports no dagster; ``model_foundry.defs`` is the thin
Dagster skin over it, ``model_foundry.cli`` the ``foundry`` command. Importing anything here does no I/O.
"""

__version__ = "0.1.0"
