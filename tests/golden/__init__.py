"""Golden record: what many small runs give, to compare each step of a refactoring with.

Run from the root of the repository::

    python -m tests.golden                 # compare with record.json, exit 1 on any difference
    python -m tests.golden --only nn/      # only calls whose name contains this (or matches it as a pattern)
    python -m tests.golden --jobs 2        # two processes
    python -m tests.golden --write         # store what comes out now

The numbers are those of one machine and its libraries: write the record anew on another one, from code
that is known to be good, before comparing.
"""
