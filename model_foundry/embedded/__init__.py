"""The parts that ``foundry up`` starts: NATS, llama.cpp, Dagster; and how they are held together."""
