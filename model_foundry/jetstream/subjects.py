"""Subjects: those of this project, and which pattern takes which. Pure text; nothing is sent here."""

from __future__ import annotations

import hashlib

PROMPT_SUBJECT = "prompts.submit"
"""Prompts are published here, or one token below: the domain."""
RESULTS_PREFIX = "results"
MAX_TOKEN_CHARACTERS = 200


def result_subject(job_id: str) -> str:
    """The subject of a job's result: ``results.<job_id>``.

    A subject token may not hold dots, spaces or wildcards, so every byte outside ``[A-Za-z0-9_-]`` is
    percent-encoded; a token longer than 200 characters is replaced by the SHA-256 of the id, in hex.
    """
    token = "".join(
        chr(b) if chr(b).isascii() and (chr(b).isalnum() or chr(b) in "_-") else f"%{b:02X}" for b in job_id.encode()
    )
    if len(token) > MAX_TOKEN_CHARACTERS:
        token = hashlib.sha256(job_id.encode()).hexdigest()
    return f"{RESULTS_PREFIX}.{token}"


def subject_matches(subject: str, pattern: str) -> bool:
    """Whether a concrete NATS subject falls under a pattern with ``*`` (one token) and ``>`` (one or more)."""
    tokens, wanted = subject.split("."), pattern.split(".")
    if any(not t or t in "*>" or any(c.isspace() for c in t) for t in tokens):
        return False
    for index, want in enumerate(wanted):
        if want == ">":
            return len(tokens) > index
        if index >= len(tokens) or want not in ("*", tokens[index]):
            return False
    return len(tokens) == len(wanted)
