"""The conformance kit: does a live model server speak its dialect, and exchanges of servers that are not at hand.

    statements      what a server of each dialect is expected to do, and what it means for the user when it does not
      checks          how each statement is tried on a live server
        subject         the server as it is tried: bounded requests, and answers as they came
        outcome         the types: statement, verdict, evidence
    examine         all of it on one server, and the configuration entry that follows from it
    exchange        exchanges as files: requests, and the raw bytes of the answers
    player          a server that plays such a file, cut and timed as one wants
    exchanges/      the files, written for this project

Belongs here: what is expected of servers, whoever makes them. Does not belong here: how answers are read in production
(``inference.client`` and the dialects), what a person sees of it (``cli``).
"""
