"""The spec against the networks themselves: reordered units change nothing, and every row and block is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import ARCHITECTURES, inputs_of, narrow, network_of

from modelfuse.client.models import load_tensors, tensors_of
from modelfuse.core.units import realign
from modelfuse.spec.architectures import Architecture
from modelfuse.spec.axes import PermutationSpec, Place

TOLERANCE = 1e-10  # of the largest logit: float64 sums in another order
# a hundred rows take their time: the hand-made residual network has all of their kinds
BROKEN = [pytest.param(name, marks=pytest.mark.slow if name == "resnet18" else ()) for name in ARCHITECTURES]


class Reordering:
    """One network whose units of all groups are moved, each group by one random order."""

    def __init__(self, architecture: Architecture) -> None:
        self.spec = architecture.spec()
        self._network = network_of(architecture).double()
        self._tensors = tensors_of(self._network)
        shapes = {name: array.shape for name, array in self._tensors.items()}
        rng = np.random.default_rng(1)
        self._orders = {group: np.roll(rng.permutation(n), 1) for group, n in self.spec.widths(shapes, "").items()}
        inputs = inputs_of(architecture, 2)
        self._inputs = inputs if inputs.dtype == torch.int64 else inputs.double()
        self._outputs = self._run()

    def leaves_outputs(self, spec: PermutationSpec) -> bool:
        """Return whether moving the units as a spec says leaves the network's outputs."""
        load_tensors(self._network, realign(self._tensors, spec, self._orders), "reordered")
        difference = (self._run() - self._outputs).abs().max()
        return bool(difference <= TOLERANCE * self._outputs.abs().max())

    def _run(self) -> torch.Tensor:
        with torch.no_grad():
            outputs: torch.Tensor = self._network(self._inputs)
        return outputs


def with_row(spec: PermutationSpec, place: Place, **changes: int) -> PermutationSpec:
    """Return the spec with the axis at a place changed, or without it where nothing is to be changed."""
    row = list(spec.axes[place.tensor])
    row[place.dimension] = replace(place.axis, **changes) if changes else None
    return replace(spec, axes={**spec.axes, place.tensor: tuple(row)})


def layouts(spec: PermutationSpec) -> list[Place]:
    """Return the places whose layout is not one entry a unit."""
    return [place for place in spec.places() if place.axis.stack != place.axis.block]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_random_orders_of_all_groups_leave_the_outputs(name: str) -> None:
    reordering = Reordering(ARCHITECTURES[name])
    assert reordering.leaves_outputs(reordering.spec)


@pytest.mark.parametrize("name", BROKEN)
def test_without_one_row_the_outputs_change(name: str) -> None:
    reordering = Reordering(narrow(ARCHITECTURES[name], 5))
    spec = reordering.spec
    moved = [tensor for tensor, row in spec.axes.items() if any(row)]
    assert moved
    for tensor in moved:
        broken = replace(spec, axes={key: row for key, row in spec.axes.items() if key != tensor})
        assert not reordering.leaves_outputs(broken), tensor


@pytest.mark.parametrize("name", BROKEN)
def test_with_one_of_two_axes_left_out_the_outputs_change(name: str) -> None:
    reordering = Reordering(narrow(ARCHITECTURES[name], 5))
    for place in reordering.spec.places():
        if sum(axis is not None for axis in reordering.spec.axes[place.tensor]) > 1:
            assert not reordering.leaves_outputs(with_row(reordering.spec, place)), place


@pytest.mark.parametrize("name", ["lenet", "fednet", "vgg9", "fedproto-cnn", "char-lstm", "characters"])
def test_with_one_block_or_stack_wrong_the_outputs_change(name: str) -> None:
    reordering = Reordering(narrow(ARCHITECTURES[name], 5))
    for place in layouts(reordering.spec):
        broken = with_row(reordering.spec, place, stack=place.axis.block, block=place.axis.stack)
        assert not reordering.leaves_outputs(broken), place
