"""``python -m tests.golden``."""

from __future__ import annotations

import os
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy and torch load
    os.environ[_name] = "1"

if __name__ == "__main__":
    from tests.golden.record import main

    sys.exit(main())
