"""Contraction plans, compiled once per structure."""

from .blocks import branch_plan, branches, partial_target_plan
from .cache import clear_plans
from .cross import cross_data, cross_inner_plan, cross_pair_plan, cross_sweep_plan
from .dimension_tree import best_tree, leaves, sweep_flops
from .features import product_plan
from .grams import Array, Gram, GramParts, Update, whole_gram
from .pairs import PairEnvironment, pair_gradient_plan, pair_gram_plan, pair_plan, slice_gram_plan
from .program import ResultPlan
from .rows.sets import Entries, RowSet
from .rows.tensors import RowSource
from .rows.tree import RowTree, entries_needed, join_sets
from .samples import design_plan, sample_sweep_plan
from .sum_tree import SumTree, sum_entries
from .sweeps import GramPlan, SweepPlan, dense_plan, gram_plan, halves_plan, inner_plan, sweep_plan

__all__ = [
    "Array",
    "Entries",
    "Gram",
    "GramParts",
    "GramPlan",
    "PairEnvironment",
    "ResultPlan",
    "RowSet",
    "RowSource",
    "RowTree",
    "SumTree",
    "SweepPlan",
    "Update",
    "best_tree",
    "branch_plan",
    "branches",
    "clear_plans",
    "cross_data",
    "cross_inner_plan",
    "cross_pair_plan",
    "cross_sweep_plan",
    "dense_plan",
    "design_plan",
    "entries_needed",
    "gram_plan",
    "halves_plan",
    "inner_plan",
    "join_sets",
    "leaves",
    "pair_gradient_plan",
    "pair_gram_plan",
    "pair_plan",
    "partial_target_plan",
    "product_plan",
    "sample_sweep_plan",
    "slice_gram_plan",
    "sum_entries",
    "sweep_flops",
    "sweep_plan",
    "whole_gram",
]
