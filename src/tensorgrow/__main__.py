"""``python -m tensorgrow``: the command line."""

from .cli import main

main()
