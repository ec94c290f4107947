"""PFNM: match neurons under a Beta-Bernoulli process, from the output down, and take the posterior mean."""

from __future__ import annotations

from dataclasses import dataclass

from modelfuse.core.engine import Schedule, outgoing_places
from modelfuse.errors import OptionError
from modelfuse.methods.contract import Merged, one_of
from modelfuse.methods.matched import ClassShares, PosteriorMean, average, class_weights
from modelfuse.methods.nonparametric import Nonparametric, grown, weights_of
from modelfuse.methods.rounds import require_no_round
from modelfuse.methods.uploads import Uploads
from modelfuse.spec.axes import PermutationSpec

__all__ = ["PFNM"]


@dataclass(frozen=True, slots=True)
class PFNM(Nonparametric):
    """One-shot merging of networks whose layers may differ in width and grow.

    Args:
        direction: ``top-down``: a unit is known by its bias and outgoing weights, the last hidden layer is first, and
            the output layer's precisions are the clients' shares of each class (PFNM for fully connected networks).
            ``bottom-up``: a unit is known by its incoming weights, the first layer comes first, and the output layer is
            averaged by class share (PFNM as FedMA and FedFisher extend it to convolutions). ``auto``: top-down where
            the network is fully connected.

    Source: PFNM (arXiv 1905.12022), as in FedMA's matching/pfnm_communication.py; FedMA §2.2 and main.py's
    ``oneshot_matching``, FedFisher's algs/pfnm.py for the direction bottom-up.
    """

    direction: str = "auto"

    def __post_init__(self) -> None:
        """Check the options."""
        Nonparametric.__post_init__(self)  # the bare super() does not work in slotted dataclasses
        one_of("--direction", self.direction, ("auto", "top-down", "bottom-up"))

    def merge(self, uploads: Uploads) -> Merged:
        """Return the merge of the clients."""
        require_no_round(uploads)
        spec = uploads.permutation_spec()
        flat = _fully_connected(spec)
        direction = self.direction if self.direction != "auto" else "top-down" if flat else "bottom-up"
        if direction == "bottom-up":
            return self._bottom_up(uploads, spec)
        if not flat:
            raise OptionError(
                "--direction top-down", "the network is not fully connected", "Use bottom-up, or --method fedma."
            )
        if self.bias_prior == "ibm":
            raise OptionError(
                "--bias-prior ibm", "from the output down the prior sits on the bias in the code too", "Leave it out."
            )
        return self._top_down(uploads, spec)

    def _top_down(self, uploads: Uploads, spec: PermutationSpec) -> Merged:
        shares = class_weights(uploads, relative=True)
        schedule = Schedule(spec.groups()[::-1], places=outgoing_places)
        alignment = self.matched(weights_of(uploads), spec, schedule, shares)
        rule = PosteriorMean(self.process(), self.prior(spec), outgoing=True, relative_precision=shares)
        return grown(uploads, average(uploads, alignment, rule, rule), alignment.matchings, {"direction": "top-down"})

    def _bottom_up(self, uploads: Uploads, spec: PermutationSpec) -> Merged:
        output = ClassShares(class_weights(uploads), uploads.shares(), members_only=False)
        alignment = self.matched(weights_of(uploads), spec)
        rule = PosteriorMean(self.process(), self.prior(spec))
        return grown(
            uploads, average(uploads, alignment, rule, output), alignment.matchings, {"direction": "bottom-up"}
        )


def _fully_connected(spec: PermutationSpec) -> bool:
    """Return whether every tensor is a matrix or vector of plain units."""
    plain = all(place.axis.role != "carry" and place.axis.stack == place.axis.block == 1 for place in spec.places())
    return plain and all(len(axes) <= 2 for axes in spec.axes.values())
