"""Subjects that this project publishes to. Pure text; nothing is sent here."""

from __future__ import annotations

import hashlib

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
