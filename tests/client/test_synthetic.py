"""Images of nobody: the same for the same string, of the right shape, with the statistics of dead leaves."""

from __future__ import annotations

import numpy as np
import pytest

from modelfuse.client.sources.strings import open_inputs, open_source
from modelfuse.client.sources.synthetic import Leaves, open_synthetic, paint
from modelfuse.errors import OptionError


def test_the_string_decides_every_pixel() -> None:
    source = open_synthetic("3x8x12,count=5,seed=3,leaves=4")
    images = source.read(None)
    assert images.shape == (5, 3, 8, 12)
    assert images.dtype == np.uint8
    assert len(source.labels) == 5
    np.testing.assert_array_equal(images, paint(Leaves((3, 8, 12), 5, 3, 4)))
    np.testing.assert_array_equal(source.read(np.array([4, 1])), images[[4, 1]])
    again = open_inputs(source.name, "test")
    np.testing.assert_array_equal(again.read(None), images)
    assert not np.array_equal(images, paint(Leaves((3, 8, 12), 5, 4, 4)))


def test_no_two_images_are_alike_and_none_is_empty() -> None:
    images = paint(Leaves((1, 16, 16), 600)).reshape(600, -1)
    assert len(np.unique(images, axis=0)) == 600
    assert (images.std(axis=1) > 5).all()


def test_neighbouring_pixels_are_alike_and_far_ones_less_so() -> None:
    images = paint(Leaves((1, 32, 32), 500)).astype(float)[:, 0] - 120
    near = (images[:, :, :-1] * images[:, :, 1:]).mean()
    far = (images[:, :, :-16] * images[:, :, 16:]).mean()
    assert near > 0.7 * (images**2).mean()
    assert far < 0.4 * (images**2).mean()


def test_there_are_edges() -> None:
    """Differences of neighbours are mostly small and sometimes large: a kurtosis far above a Gaussian's 3."""
    images = paint(Leaves((1, 32, 32), 500)).astype(float)
    steps = np.diff(images, axis=3).ravel()
    assert (steps**4).mean() / (steps**2).mean() ** 2 > 6


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "3x32",
        "3x32x32x1",
        "3x0x32",
        "threexfour",
        "3x8x8,count=0",
        "3x8x8,size=3",
        "3x8x8,seed=-1",
        "3x8x8,count=1_0",
        "3x8x8,seed=1,seed=2",
        "3x8x8,seed",
    ],
)
def test_what_the_string_must_say(argument: str) -> None:
    with pytest.raises(OptionError, match="channels, height and width"):
        open_synthetic(argument)


@pytest.mark.parametrize("argument", ["3x32x32,count=10000000", "1x999999x999999", f"1x8x8,count={10**24}"])
def test_more_images_than_memory_holds(argument: str) -> None:
    with pytest.raises(OptionError, match="more than 4 GiB"):
        open_synthetic(argument)


def test_nothing_trains_on_images_without_labels() -> None:
    with pytest.raises(OptionError, match="no labels"):
        open_source("synthetic:1x8x8", "train")
