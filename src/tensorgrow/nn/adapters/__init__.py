"""Small networks beside frozen layers: a model adapted to other data."""
