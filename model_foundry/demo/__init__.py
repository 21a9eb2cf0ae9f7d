"""What ``foundry demo`` brings along: a configuration and prompts of our own. Nothing here starts or sends anything."""
