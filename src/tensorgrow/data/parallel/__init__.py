"""Work on several cores, GPUs or a dask cluster, in order."""
