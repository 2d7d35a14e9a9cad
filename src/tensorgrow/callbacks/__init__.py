"""Who listens to a run: progress, checkpoints, trackers."""
