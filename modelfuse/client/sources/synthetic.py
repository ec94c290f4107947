"""``synthetic:CxHxW``: images of nobody, dead leaves in random colours, for a server that has no data.

Opaque shapes of all sizes that lie on top of each other have edges, textures and scales as photographs do, which is
what a network's early layers look at.

Source: A. B. Lee, D. Mumford and J. Huang, Occlusion models for natural images, 2001; as images to learn from,
M. Baradad et al., Learning to see by looking at noise (arXiv 2106.05963).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.sources.source import Source
from modelfuse.errors import OptionError
from modelfuse.types import IndexArray

__all__ = ["Leaves", "open_synthetic", "paint"]

TOGETHER = 256  # images that are painted at once: few enough to stay in cache
BLOCK = 1 << 20  # entries that are painted at once, at most
LARGEST_SET = 1 << 32  # entries in all: 4 GiB
SMALLEST, LARGEST = 1 / 16, 5 / 8  # radii, as shares of the image's shorter side
MARGIN = 1 / 8  # how far outside of the image a leaf's centre may lie
LIGHT = 120.0, 60.0  # mean and deviation of a leaf's brightness, of 255
TINT = 25.0  # deviation of a channel from it
SLOPE = 48.0  # deviation of the change of brightness over a whole image
GRAIN = 6.0  # mean deviation of a pixel within a leaf

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Leaves:
    """What a string asks for.

    Args:
        shape: (C, H, W).
        count: Images, at least 1.
        seed: Seed of all of them, at least 0.
        leaves: Leaves an image, at least 1.
    """

    shape: tuple[int, int, int]
    count: int = 16_000
    seed: int = 0
    leaves: int = 60

    def text(self) -> str:
        """Return the data string that gives these images."""
        size = "x".join(map(str, self.shape))
        return f"synthetic:{size},count={self.count},leaves={self.leaves},seed={self.seed}"


def open_synthetic(argument: str) -> Source:
    """Return synthetic images; they have no classes, and the label 0.

    Args:
        argument: ``CxHxW``, and behind commas ``count=``, ``seed=`` and ``leaves=``.

    Raises:
        OptionError: It is something else.
    """
    wanted = _parse(argument)

    def read(indices: IndexArray | None) -> NDArray[Any]:
        images = paint(wanted)
        return images if indices is None else images[indices]

    return Source(wanted.text(), np.zeros(wanted.count, dtype=np.int64), (), read)


def paint(wanted: Leaves) -> NDArray[np.uint8]:
    """Return the images: leaves painted back to front, the same one of many images at once.

    Args:
        wanted: How many, of which shape, from which seed.

    Returns:
        (N, C, H, W).
    """
    rng = np.random.default_rng(wanted.seed)
    images = np.empty((wanted.count, *wanted.shape), dtype=np.uint8)
    together = max(1, min(TOGETHER, BLOCK // math.prod(wanted.shape)))
    for start in range(0, wanted.count, together):
        block = images[start : start + together]
        canvas = np.broadcast_to(rng.uniform(0, 255, (*block.shape[:2], 1, 1)), block.shape).astype(np.float32)
        for _ in range(wanted.leaves):
            _paint_leaf(canvas, rng)
        block[:] = canvas.clip(0, 255)
    return images


def _paint_leaf(canvas: Floats, rng: np.random.Generator) -> None:
    """Paint one leaf on each image, in place: an ellipse or a box with a slope of light and some grain."""
    count, channels, height, width = canvas.shape
    side = min(height, width)
    # the density of radii falls with their cube: no scale is preferred
    radius = rng.uniform((LARGEST * side) ** -2, (SMALLEST * side) ** -2, count) ** -0.5
    turn, stretch = rng.uniform(0, math.pi, count), rng.lognormal(0, 0.5, count)
    down = np.arange(height, dtype=np.float32)[:, None] - _column(_spread(rng, height, count))  # (N, H, 1)
    right = np.arange(width, dtype=np.float32) - _column(_spread(rng, width, count))  # (N, 1, W)
    cosine, sine = _column(np.cos(turn)), _column(np.sin(turn))
    along = np.abs(cosine * right + sine * down) / _column(radius * stretch)  # (N, H, W)
    across = np.abs(cosine * down - sine * right) / _column(radius / stretch)
    box = _column(rng.random((count,))) < 0.5
    inside = np.where(box, np.maximum(along, across), along * along + across * across) < 1
    colour = rng.normal(*LIGHT, (count, 1)).clip(0, 255) + rng.normal(0, TINT, (count, channels))
    slope = rng.normal(0, SLOPE / side, (2, count))
    grain = rng.standard_normal(inside.shape, dtype=np.float32) * _column(rng.exponential(GRAIN, (count,)))
    shade = _column(slope[0]) * right + _column(slope[1]) * down + grain
    light = colour.astype(np.float32)[:, :, None, None] + shade[:, None]  # (N, C, H, W)
    np.copyto(canvas, light, where=inside[:, None])


def _spread(rng: np.random.Generator, length: int, count: int) -> NDArray[np.float64]:
    return rng.uniform(-MARGIN * length, (1 + MARGIN) * length, count)


def _column(numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers.astype(np.float32)[:, None, None]  # (N,) -> (N, 1, 1)


def _parse(argument: str) -> Leaves:
    size, *pairs = argument.split(",")
    shape = [int(length) for length in size.split("x") if length.isdecimal()]
    more = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    known = {field.name for field in fields(Leaves)} - {"shape"}
    fits = len(shape) == 3 == size.count("x") + 1 and min(shape) > 0
    if not fits or len(more) < len(pairs) or not more.keys() <= known or not all(map(str.isdecimal, more.values())):
        raise OptionError(f"--data synthetic:{argument}", *_UNREADABLE)
    wanted = Leaves((shape[0], shape[1], shape[2]), **{key: int(value) for key, value in more.items()})
    if wanted.count < 1 or wanted.leaves < 1:
        raise OptionError(f"--data synthetic:{argument}", *_UNREADABLE)
    if wanted.count * math.prod(shape) > LARGEST_SET:
        raise OptionError(f"--data synthetic:{argument}", "that is more than 4 GiB of images", "Ask for fewer.")
    return wanted


_UNREADABLE = (
    "it does not say which images to make",
    "Write channels, height and width, and what is to be other than usual: synthetic:3x32x32,count=16000,seed=0.",
)
