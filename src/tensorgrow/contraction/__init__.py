"""Contraction plans, compiled once per structure."""

from .pairs import PairEnvironment, PairPlan, pair_plan, slice_gram_plan
from .partial import PartialPlan, partial_plan
from .plans import (
    DensePlan,
    GramPlan,
    InnerPlan,
    SweepPlan,
    dense_plan,
    gram_plan,
    inner_plan,
    sweep_plan,
)
from .products import ProductPlan, product_plan
from .program import Array, Program, Update
from .rows import Entries, RowSource, RowTree
from .samples import DesignPlan, SampleSweepPlan, design_plan, sample_sweep_plan

__all__ = [
    "Array",
    "DensePlan",
    "DesignPlan",
    "Entries",
    "GramPlan",
    "InnerPlan",
    "PairEnvironment",
    "PairPlan",
    "PartialPlan",
    "ProductPlan",
    "Program",
    "RowSource",
    "RowTree",
    "SampleSweepPlan",
    "SweepPlan",
    "Update",
    "dense_plan",
    "design_plan",
    "gram_plan",
    "inner_plan",
    "pair_plan",
    "partial_plan",
    "product_plan",
    "sample_sweep_plan",
    "slice_gram_plan",
    "sweep_plan",
]
