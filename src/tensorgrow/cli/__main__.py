"""``python -m tensorgrow.cli``."""

from . import main

main()
