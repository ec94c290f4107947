"""What a skewed label distribution teaches the output layer, and how to take it back without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelfuse.types import FloatArray, Tensors

__all__ = ["even", "input_scale"]


def input_scale(fisher: Tensors, class_axis: Mapping[str, int]) -> dict[str, FloatArray]:
    """Return the root mean square of what the output layer reads, up to one factor, from its Fisher alone.

    The entry of class c and input j is E[g_c² h_j²], with g_c the derivative of the loss by the logit: its mean over
    the classes goes with h_j². A bias reads the constant 1, on the same scale.

    Args:
        fisher: A client's raw Fisher (ρ = 1).
        class_axis: For each tensor of the output layer, the axis that runs over the classes.

    Returns:
        One array for each of these tensors, in its shape.
    """
    return {
        name: np.broadcast_to(np.sqrt(fisher[name].mean(axis=axis, keepdims=True)), fisher[name].shape)
        for name, axis in class_axis.items()
    }


def even(
    tensors: Tensors, precisions: Tensors, inputs: Tensors, class_axis: Mapping[str, int]
) -> dict[str, FloatArray]:
    """Return the output layer nearest to the given one that gives every class the same logit at the mean input.

    A client that never saw a class has learnt to say no to it, whatever the input; among merged clients that is noise.
    For each class, min_v Σ_j f_cj (v_j − w_cj)² subject to Σ_j v_j h_j = 0, which is v = w − (w·h / Σ_j h_j²/f_cj) h/f.

    Args:
        tensors: A model's tensors.
        precisions: The precision f of each entry, above 0.
        inputs: The inputs' sizes h, as :func:`input_scale` gives them.
        class_axis: For each tensor of the output layer, the axis that runs over the classes.

    Returns:
        The tensors of the output layer.
    """
    rows = {name: _by_class(tensors[name], axis) for name, axis in class_axis.items()}
    sizes = {name: _by_class(inputs[name], axis) for name, axis in class_axis.items()}
    steps = {name: sizes[name] / _by_class(precisions[name], axis) for name, axis in class_axis.items()}
    logits = np.sum([np.sum(rows[name] * sizes[name], axis=1) for name in rows], axis=0)  # (C,)
    lengths = np.sum([np.sum(steps[name] * sizes[name], axis=1) for name in rows], axis=0)  # (C,)
    amounts = np.divide(logits, lengths, out=np.zeros_like(logits), where=lengths > 0)
    return {
        name: _from_classes(rows[name] - amounts[:, None] * steps[name], np.shape(tensors[name]), axis)
        for name, axis in class_axis.items()
    }


def _by_class(array: Any, axis: int) -> FloatArray:
    front: FloatArray = np.moveaxis(np.asarray(array, dtype=np.float64), axis, 0)
    return front.reshape(len(front), -1)  # (C, inputs)


def _from_classes(rows: FloatArray, shape: tuple[int, ...], axis: int) -> FloatArray:
    rest = shape[:axis] + shape[axis + 1 :]
    return np.moveaxis(rows.reshape(shape[axis], *rest), 0, axis)
