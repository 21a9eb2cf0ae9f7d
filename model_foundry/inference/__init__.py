"""Asking model servers: two dialects, one outcome.

    dispatch        one loop that owns the state: who waits, who is busy, which worker cools down
      schedule        pure: which waiting job goes to which free slot
      client          one attempt: the HTTP request, its time limits, its end
        openai, ollama  pure: the request's body, and a streamed answer's pieces, for each dialect
          values          pure: numbers, counts and texts, however a server writes them
        bodies          pure: compression, and which shape a body has
          sse, ndjson     pure: bytes to events
        failures        pure: what a server's refusal means
        answer          the pieces gathered (tool_calls: which piece is whose), and their timings
        doubts          pure: the server's figures held against what the client saw
      descriptors     open files for many connections
    probe           is a worker there, and what does it offer

Belongs here: everything between a job with its candidate workers and a ``records.Completion``. Does not belong here:
which workers are candidates (``routing``), recording and publishing (``answering``), any decision about a batch.
"""
