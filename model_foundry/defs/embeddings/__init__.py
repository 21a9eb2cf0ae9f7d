"""The notes' embeddings as an asset."""
