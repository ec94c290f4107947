from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelfuse.errors import OptionError
from modelfuse.files.quantize import dequantize, quantize

VECTORS = Path(__file__).parents[1] / "data" / "quantize16.npz"


@pytest.mark.parametrize("case", ["normal", "fisher_wide", "zeros", "single", "mixed_scale"])
def test_codes_and_values_are_those_of_the_reference(case: str) -> None:
    with np.load(VECTORS) as vectors:
        values, codes, expected = (vectors[f"{part}_{case}"] for part in ("x", "code", "q"))
    found, scale = quantize(values, 16)
    np.testing.assert_array_equal(found, codes)
    assert found.dtype == np.int16
    np.testing.assert_allclose(dequantize(found, float(scale), 16), expected, rtol=2**-24, atol=0)


def test_eight_bits_by_hand() -> None:
    codes, scale = quantize(np.array([[-2.0, 1.0], [0.0, 0.5]]), 8)
    assert scale == 2
    np.testing.assert_array_equal(codes, np.array([[-127, 64], [0, 32]], np.int8))  # 63.5 -> 64, 31.75 -> 32
    np.testing.assert_allclose(dequantize(codes, 2.0, 8), [[-2, 128 / 127], [0, 64 / 127]], rtol=1e-7)


def test_halves_round_to_even() -> None:
    codes, _ = quantize(np.array([254.0, 1.0, 3.0, 5.0]), 8)
    np.testing.assert_array_equal(codes, [127, 0, 2, 2])  # 0.5, 1.5, 2.5


@pytest.mark.parametrize("shape", [(3, 2), (0, 4), ()])
def test_zero_and_empty_tensors_survive(shape: tuple[int, ...]) -> None:
    codes, scale = quantize(np.zeros(shape, np.float32), 16)
    assert (scale, codes.shape) == (0, shape)
    np.testing.assert_array_equal(dequantize(codes, float(scale), 16), np.zeros(shape))


def test_maximum_rounded_to_float32_keeps_codes_in_range() -> None:
    codes, _ = quantize(np.array([1 + 2**-25, -1 - 2**-25]), 16)
    np.testing.assert_array_equal(codes, [32767, -32767])


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    st.sampled_from([8, 16]),
)
def test_error_is_at_most_half_a_level(values: np.ndarray, bits: int) -> None:
    codes, scale = quantize(values, bits)
    levels = 2 ** (bits - 1) - 1
    error = np.abs(dequantize(codes, float(scale), bits).astype(np.float64) - values)
    assert (error <= float(scale) * (0.5 / levels + 2**-24) + 2.0**-149).all()


@pytest.mark.parametrize("bits", [0, 4, 32])
def test_other_numbers_of_bits_are_refused(bits: int) -> None:
    with pytest.raises(OptionError, match=f"{bits} bits an entry are not offered. Choose 16 or 8."):
        quantize(np.ones(2), bits)
