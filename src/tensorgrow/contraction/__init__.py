"""Contraction plans, compiled once per structure."""

from .blocks import BranchPlan, PartialTargetPlan, branch_plan, branches, partial_target_plan
from .cache import clear_plans
from .dimension_tree import best_tree, leaves
from .features import ProductPlan, product_plan
from .pairs import (
    PairEnvironment,
    PairPlan,
    SliceGramPlan,
    pair_gradient_plan,
    pair_gram_plan,
    pair_plan,
    slice_gram_plan,
)
from .program import Array, Program, Update
from .rows.sets import Entries
from .rows.tensors import RowSource
from .rows.tree import RowTree
from .samples import DesignPlan, SampleSweepPlan, design_plan, sample_sweep_plan
from .sums import PartialPlan, partial_plan
from .sweeps import DensePlan, GramPlan, InnerPlan, SweepPlan, dense_plan, gram_plan, inner_plan, sweep_plan

__all__ = [
    "Array",
    "BranchPlan",
    "DensePlan",
    "DesignPlan",
    "Entries",
    "GramPlan",
    "InnerPlan",
    "PairEnvironment",
    "PairPlan",
    "PartialPlan",
    "PartialTargetPlan",
    "ProductPlan",
    "Program",
    "RowSource",
    "RowTree",
    "SampleSweepPlan",
    "SliceGramPlan",
    "SweepPlan",
    "Update",
    "best_tree",
    "branch_plan",
    "branches",
    "clear_plans",
    "dense_plan",
    "design_plan",
    "gram_plan",
    "inner_plan",
    "leaves",
    "pair_gradient_plan",
    "pair_gram_plan",
    "pair_plan",
    "partial_plan",
    "partial_target_plan",
    "product_plan",
    "sample_sweep_plan",
    "slice_gram_plan",
    "sweep_plan",
]
