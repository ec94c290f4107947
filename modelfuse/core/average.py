"""Elementwise averages over clients, accumulated in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelfuse.types import FloatArray

__all__ = ["members_mean", "objective", "plain_mean", "weighted_mean"]


def weighted_mean(
    values: Sequence[FloatArray], weights: Sequence[FloatArray | float], shares: Sequence[float], floor: float = 0.0
) -> tuple[FloatArray, int]:
    """Return the weighted mean over clients, entry by entry.

    Args:
        values: One array a client, all of one shape.
        weights: One weight a client: a number, or an array of that shape; at least 0.
        shares: The plain weights that stand in where the weights sum to no more than ``floor`` (the clients' examples).
        floor: The least sum of weights that is trusted, at least 0.

    Returns:
        The mean, and the number of entries where the shares stood in.

    Source: FedFiOT eq. 7.
    """
    total = np.zeros(np.shape(values[0]))
    mean = np.zeros(np.shape(values[0]))
    for value, weight in zip(values, weights, strict=True):
        mean += weight * value
        total += weight
    unseen = total <= floor if floor == 0 else total < floor
    replaced = int(np.count_nonzero(unseen))
    np.divide(mean, total, out=mean, where=~unseen)
    if replaced:
        mean[unseen] = plain_mean([value[unseen] for value in values], shares)
    return mean, replaced


def plain_mean(values: Sequence[FloatArray], shares: Sequence[float]) -> FloatArray:
    """Return the mean over clients with one weight a client.

    Args:
        values: One array a client, all of one shape.
        shares: One weight a client, at least 0 and not all 0.
    """
    mean = np.zeros(np.shape(values[0]))
    for value, share in zip(values, shares, strict=True):
        mean += share * value
    return np.asarray(mean / float(sum(shares)))


def members_mean(values: Sequence[FloatArray], weights: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the weighted mean over the clients that have an entry, entry by entry; 0 where none has.

    Args:
        values: One array a client, all of one shape; 0 where a client lacks an entry.
        weights: One array a client, broadcastable to that shape, at least 0; 0 where it lacks the entry.

    Returns:
        The mean, and the summed weights, broadcastable to its shape.

    Source: FedMA §2.1 (dummy units do not count).
    """
    total = np.zeros(np.broadcast_shapes(*(np.shape(weight) for weight in weights)))
    mean = np.zeros(np.shape(values[0]))
    for value, weight in zip(values, weights, strict=True):
        mean += weight * value
        total += weight
    return np.divide(mean, total, out=np.zeros_like(mean), where=total > 0), total


def objective(merged: FloatArray, values: Sequence[FloatArray], precisions: Sequence[FloatArray | float]) -> float:
    """Return the precision-weighted squared distance of the clients to a merged array.

    Args:
        merged: The merged array.
        values: One aligned array a client, of the same shape.
        precisions: One precision a client, broadcastable to that shape.

    Source: FedFiOT eq. 2.
    """
    return float(
        sum(np.sum(precision * np.square(merged - value)) for value, precision in zip(values, precisions, strict=True))
    )
