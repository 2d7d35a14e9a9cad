"""Decompositions by an earlier source, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from tensorgrow.errors import OptionError
from tensorgrow.experiments.harness import Row

__all__ = ["decompose_earlier"]

# What every version of the library knows. As for the source of today, a small run comes first, so that lazy
# imports are not part of the measurement; plans are cold, since the process is new.
SCRIPT = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
import tensorgrow as tg
x, options = torch.from_numpy(np.load(sys.argv[1])), json.loads(sys.argv[2])
tg.decompose(np.ones((3, 3, 3)), max_error=0.5, random_state=0, progress=False)
wall, cpu = time.perf_counter(), time.process_time()
r = tg.decompose(x, progress=False, **options)
seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
row = {"size": r.num_parameters, "error": r.relative_error, "seconds": seconds, "cpu_seconds": cpu_seconds}
print(json.dumps(row))
"""


def decompose_earlier(source: Path | None, x: torch.Tensor, **options: object) -> Row:
    """Size, error and seconds of ``tg.decompose(x, **options)`` with the library in a folder."""
    if source is None or not (source / "tensorgrow").is_dir():
        raise OptionError(f"--label before needs --earlier, a folder that holds tensorgrow; given: {source}")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | one | {"PYTHONPATH": str(source)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.npy"
        np.save(file, x.numpy())
        command = [sys.executable, "-c", SCRIPT, str(file), json.dumps(options)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    error, limit = options["max_error"], options["max_seconds"]
    assert isinstance(error, float) and isinstance(limit, float)
    return {**row, "reached": row["error"] <= error, "hit_limit": row["seconds"] >= limit}
