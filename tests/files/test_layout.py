from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save as library_bytes

from modelfuse.errors import ModelfuseError
from modelfuse.files.layout import DTYPES, TensorLayout, code_of, is_float, layout_of, numpy_dtype


@pytest.mark.parametrize("code", DTYPES)
def test_code_and_dtype_are_inverse(code: str) -> None:
    assert code_of(numpy_dtype(code)) == code


@pytest.mark.parametrize("code", sorted(DTYPES.keys() - {"F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"}))
def test_codes_are_those_of_the_safetensors_library(code: str) -> None:
    assert f'"dtype":"{code}"'.encode() in library_bytes({"w": np.zeros(1, numpy_dtype(code))})


def test_size_and_bytes_follow_dtype_and_shape() -> None:
    assert (TensorLayout("BF16", (3, 4)).size, TensorLayout("BF16", (3, 4)).nbytes) == (12, 24)
    assert (TensorLayout("F64", ()).size, TensorLayout("F64", ()).nbytes) == (1, 8)
    assert TensorLayout("F32", (0, 7)).nbytes == 0


def test_layout_does_not_depend_on_byte_order() -> None:
    assert layout_of(np.zeros((2, 3), ">f4")) == TensorLayout("F32", (2, 3))


def test_only_real_floating_point_counts_as_float() -> None:
    assert {code for code in DTYPES if is_float(code)} == {code for code in DTYPES if code.startswith(("F", "BF"))}


@pytest.mark.parametrize("dtype", [np.dtype("U3"), np.dtype(object), np.dtype(ml_dtypes.int4), np.dtype("c16")])
def test_dtype_that_no_file_holds_is_refused(dtype: np.dtype) -> None:
    with pytest.raises(ModelfuseError, match="cannot hold"):
        code_of(dtype)


def test_unknown_code_is_refused() -> None:
    with pytest.raises(ModelfuseError, match="F4 is none of"):
        numpy_dtype("F4")
