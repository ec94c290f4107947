"""What clients of one merge must agree on: tensors, shapes, the permutation spec and the order of the labels."""

from __future__ import annotations

from collections.abc import Sequence

from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.layout import is_float
from modelfuse.methods.uploads import Upload
from modelfuse.spec.axes import PermutationSpec

__all__ = ["check_classes", "check_shapes", "check_tensors"]


def check_tensors(clients: Sequence[Upload], spec: PermutationSpec | None, equal_widths: bool) -> None:
    """Check that all clients have the same tensors, and that these fit the spec.

    Args:
        clients: The clients.
        spec: The permutation spec, or None.
        equal_widths: Whether groups must be as wide in all clients.

    Raises:
        ContentError: They do not.
    """
    first = clients[0].model
    for name, layout in first.layout.items():
        if layout.dtype == "C64":
            raise ContentError(first.label, f"{name} is complex", "Write its real and imaginary parts as two tensors.")
    for client in clients[1:]:
        _check_names(first, client.model)
        if equal_widths:
            check_shapes(first, client.model)
    if spec is None:
        return
    for client in clients:
        spec.widths(client.model.shapes(), client.model.label)
        _check_fixed_axes(first, client.model, spec)
        for name in client.model.layout:
            if name not in spec.axes:
                raise ContentError(
                    client.model.label,
                    f"tensor {name} is not in the permutation spec",
                    "Pass the --architecture it was trained with, or a --spec that has it.",
                )


def _check_names(first: Checkpoint, other: Checkpoint) -> None:
    for one, two in ((first, other), (other, first)):
        missing = next((name for name in one.layout if name not in two.layout), None)
        if missing is not None:
            raise ContentError(
                two.label, f"tensor {missing} is missing, {one.label} has it", "Merge clients of one architecture."
            )
    for name, layout in first.layout.items():
        if is_float(layout.dtype) != is_float(other.layout[name].dtype):
            raise ContentError(
                other.label,
                f"{name} is {other.layout[name].dtype}, in {first.label} it is {layout.dtype}",
                "Write both with the same kind of number.",
            )


def _check_fixed_axes(first: Checkpoint, other: Checkpoint, spec: PermutationSpec) -> None:
    for name, axes in spec.axes.items():
        one, two = first.layout[name].shape, other.layout[name].shape
        for dimension, axis in enumerate(axes):
            if axis is None and one[dimension] != two[dimension]:
                raise ContentError(
                    other.label,
                    f"{name} is {list(two)}, in {first.label} it is {list(one)}: axis {dimension} is no group's",
                    "Merge clients that differ in the widths of hidden layers only.",
                )


def check_shapes(first: Checkpoint, other: Checkpoint) -> None:
    """Check that two models have the same tensors in the same shapes.

    Raises:
        ContentError: They do not.
    """
    _check_names(first, other)
    for name, layout in first.layout.items():
        if layout.shape != other.layout[name].shape:
            raise ContentError(
                other.label,
                f"{name} is {list(other.layout[name].shape)}, in {first.label} it is {list(layout.shape)}",
                "Merge clients of one width, or use a method that takes several (pfnm, fedma).",
            )


def check_classes(clients: Sequence[Upload]) -> None:
    """Check that all clients that name their classes have them in one order.

    Raises:
        ContentError: They do not.
    """
    known = [client for client in clients if client.info.classes is not None]
    for client in known[1:]:
        if client.info.classes != known[0].info.classes:
            raise ContentError(
                client.model.label,
                f"its label order is not that of {known[0].model.label}",
                "Train all clients on data with one order of classes.",
            )
