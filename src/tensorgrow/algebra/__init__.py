"""Linear algebra on cores: solves, gauges, moves from one network to another."""
