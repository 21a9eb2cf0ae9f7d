"""The Dagster skin: the only place that imports dagster (the run launcher aside).

One folder a concept. An asset body reads its inputs through a resource, calls one domain function, and returns a
``MaterializeResult``; anything longer belongs in the domain. Importing these modules does no I/O: the definitions are
built when Dagster asks for them.
"""
