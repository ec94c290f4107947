"""Quantised uploads: 16- or 8-bit codes and one 32-bit scale a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import OptionError

__all__ = ["code_dtype", "dequantize", "quantize"]

CODE_DTYPES: dict[int, np.dtype[Any]] = {16: np.dtype(np.int16), 8: np.dtype(np.int8)}


def code_dtype(bits: int) -> np.dtype[Any]:
    """Return the integer dtype of the codes.

    Args:
        bits: 16 or 8.

    Raises:
        OptionError: Another number of bits.
    """
    if bits not in CODE_DTYPES:
        raise OptionError("--quantize", f"{bits} bits an entry are not offered", "Choose 16 or 8.")
    return CODE_DTYPES[bits]


def quantize(array: NDArray[Any], bits: int) -> tuple[NDArray[Any], np.float32]:
    """Return the codes ``round(l x / ‖x‖∞)`` of a tensor, l = 2^(bits−1) − 1, and its scale ‖x‖∞.

    Halves round to even; an all-zero or empty tensor has scale 0 and codes 0.

    Args:
        array: Finite values below 2^128 in magnitude, of any shape.
        bits: 16 or 8.

    Returns:
        The codes, int16 or int8 in the tensor's shape, and the scale.

    Raises:
        OptionError: Another number of bits.

    Source: FedFiOT eq. 107.
    """
    dtype = code_dtype(bits)
    values = np.asarray(array).astype(np.float64)
    scale = np.float32(np.abs(values).max(initial=0.0))
    if scale == 0:
        return np.zeros(values.shape, dtype), scale
    levels = float(np.iinfo(dtype).max)
    codes = np.rint(levels * values / float(scale))
    # a float64 tensor's own maximum may exceed its scale rounded to 32 bits
    return np.clip(codes, -levels, levels).astype(dtype), scale


def dequantize(codes: NDArray[Any], scale: float, bits: int) -> NDArray[np.float32]:
    """Return the values ``‖x‖∞ · code / l`` that codes stand for, as float32.

    Args:
        codes: int16 or int8, of any shape.
        scale: The tensor's scale ‖x‖∞, at least 0.
        bits: 16 or 8.

    Source: FedFiOT eq. 107.
    """
    levels = float(np.iinfo(code_dtype(bits)).max)
    return (np.asarray(codes, np.float64) * scale / levels).astype(np.float32)
