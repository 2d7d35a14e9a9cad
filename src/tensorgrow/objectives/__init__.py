"""What is minimised."""

from .base import Differentiable, HeldOut, LeastSquares, Screening, SharesPasses, Sharing, Sweeping
from .block_kernels import Codes, Survey
from .blocks import BlockedLeastSquares
from .classes import Classification, logits
from .compressed import CompressedLeastSquares
from .dense import DenseLeastSquares
from .density import DensityLoss
from .density_slices import Samples
from .entries import ObservedLeastSquares
from .entry_losses import ReweightedLeastSquares
from .loss import LossFunction
from .network import NetworkLeastSquares
from .partition_tasks import EntryPart
from .partitions import Census, PartitionedLeastSquares
from .penalties import NO_PRIORS, Penalties
from .samples import RegressionLeastSquares
from .slices import PairProblem, SliceFit

__all__ = [
    "NO_PRIORS",
    "BlockedLeastSquares",
    "Census",
    "Classification",
    "Codes",
    "CompressedLeastSquares",
    "DenseLeastSquares",
    "DensityLoss",
    "Differentiable",
    "EntryPart",
    "HeldOut",
    "LeastSquares",
    "LossFunction",
    "NetworkLeastSquares",
    "ObservedLeastSquares",
    "PairProblem",
    "PartitionedLeastSquares",
    "Penalties",
    "RegressionLeastSquares",
    "ReweightedLeastSquares",
    "Samples",
    "Screening",
    "SharesPasses",
    "Sharing",
    "SliceFit",
    "Survey",
    "Sweeping",
    "logits",
]
