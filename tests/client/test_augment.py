"""Crops and flips."""

from __future__ import annotations

import torch
from torch import Tensor

from modelfuse.client.augment import PADDING, augment, crop, flip

BLACK = torch.tensor([-1.0, -2.0]).reshape(2, 1, 1)


def batch(count: int = 60) -> Tensor:
    return torch.rand(count, 2, 5, 7, generator=torch.Generator().manual_seed(0))


def windows(image: Tensor) -> list[Tensor]:
    padded = BLACK.expand(2, 5 + 2 * PADDING, 7 + 2 * PADDING).clone()
    padded[:, PADDING : PADDING + 5, PADDING : PADDING + 7] = image
    return [padded[:, y : y + 5, x : x + 7] for y in range(2 * PADDING + 1) for x in range(2 * PADDING + 1)]


def test_a_crop_is_a_window_of_the_image_in_black() -> None:
    images = batch()
    places = []
    for image, cropped in zip(images, crop(images, BLACK, torch.Generator().manual_seed(1)), strict=True):
        found = [number for number, window in enumerate(windows(image)) if torch.equal(window, cropped)]
        assert found
        places += found[:1]
    assert len(set(places)) > 30  # each image has its own place: 60 draws of 81 places repeat some


def test_about_half_of_the_images_are_mirrored() -> None:
    images = batch(200)
    flipped = flip(images, torch.Generator().manual_seed(1))
    mirrored = [torch.equal(new, old.flip(2)) for new, old in zip(flipped, images, strict=True)]
    kept = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 70 < sum(mirrored) < 130


def test_augmentations_are_named_by_what_they_do() -> None:
    images = batch()

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(2)

    assert torch.equal(augment(images, "none", BLACK, generator()), images)
    assert torch.equal(augment(images, "flip", BLACK, generator()), flip(images, generator()))
    assert torch.equal(augment(images, "crop", BLACK, generator()), crop(images, BLACK, generator()))
    one = generator()
    assert torch.equal(augment(images, "crop-flip", BLACK, generator()), flip(crop(images, BLACK, one), one))
