"""NATS JetStream: the only way in and out."""
