"""Envelopes: from the bytes of a stream's message to what it says, or to a reject with its reason.

``prompts`` and ``events`` each read one kind of message, ``fields`` is what they share, ``payloads`` knows what the
payloads of well-known events hold. All of it is pure, and nothing raises: what can't be read is a ``Reject``.
"""
