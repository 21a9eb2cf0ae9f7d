"""Benchmarks: which model, on which machine, for which work, and is it sure?

Belongs here: suites and their checks, planning and running a sweep, judging, comparing, reporting. Does not belong
here: how a request is made (``inference``), who may use a worker's slots (``fleet``), SQL (``sql``, ``warehouse``).
"""
