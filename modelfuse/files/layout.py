"""Dtypes and shapes: the codes that safetensors files use, and the numpy dtypes they stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ModelfuseError

__all__ = ["TensorLayout", "code_of", "is_float", "layout_of", "numpy_dtype"]

FLOATS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
DTYPES: dict[str, np.dtype[Any]] = FLOATS | {
    "C64": np.dtype("<c8"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """What a tensor looks like, without its values.

    Args:
        dtype: The safetensors code, such as ``F32``, ``BF16``, ``F8_E4M3``, ``I64`` or ``BOOL``.
        shape: Its lengths; () for a scalar.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Entries in all."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in a file."""
        return self.size * numpy_dtype(self.dtype).itemsize


def numpy_dtype(code: str) -> np.dtype[Any]:
    """Return the numpy dtype (BF16 and the FP8 kinds: ml_dtypes') that a safetensors code stands for.

    Raises:
        ModelfuseError: The code is unknown, or packs several entries in a byte.
    """
    try:
        return DTYPES[code]
    except KeyError:
        raise ModelfuseError(f"dtype {code} is none of {', '.join(DTYPES)}") from None


def code_of(dtype: np.dtype[Any]) -> str:
    """Return the safetensors code of a numpy dtype, whatever its byte order.

    Raises:
        ModelfuseError: safetensors files cannot hold the dtype.
    """
    try:
        return CODES[dtype.newbyteorder("<")]
    except KeyError:
        raise ModelfuseError(f"a safetensors file cannot hold the dtype {dtype}") from None


def is_float(code: str) -> bool:
    """Say whether a safetensors code stands for real floating-point numbers."""
    return code in FLOATS


def layout_of(array: NDArray[Any]) -> TensorLayout:
    """Return the layout that an array has in a file."""
    return TensorLayout(code_of(array.dtype), tuple(array.shape))
