"""Random crops and flips of a batch, each image with its own draw."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["PADDING", "augment", "crop", "flip"]

PADDING = 4


def augment(images: Tensor, kind: str, black: Tensor, generator: torch.Generator) -> Tensor:
    """Return a batch as an augmentation makes it.

    Args:
        images: (n, C, H, W), normalised.
        kind: ``none``, ``flip``, ``crop`` or ``crop-flip``.
        black: What a black pixel is after normalisation, (C, 1, 1).
        generator: A generator on the CPU: the draws do not depend on the device.

    Source: FedFiOT app. C.1.
    """
    if "crop" in kind:
        images = crop(images, black, generator)
    if "flip" in kind:
        images = flip(images, generator)
    return images


def crop(images: Tensor, black: Tensor, generator: torch.Generator) -> Tensor:
    """Return each image with a black border, cut to its size at a random place; arguments as :func:`augment`."""
    count, channels, height, width = images.shape
    padded = black.to(images.dtype).expand(count, channels, height + 2 * PADDING, width + 2 * PADDING)
    padded = padded.contiguous(memory_format=torch.channels_last)
    padded[:, :, PADDING : PADDING + height, PADDING : PADDING + width] = images
    rows = padded.permute(0, 2, 3, 1)  # (n, C, H+8, W+8) -> (n, H+8, W+8, C), a view
    windows = rows.unfold(1, height, 1).unfold(2, width, 1)  # (n, 9, 9, C, H, W), a view
    top, left = torch.randint(2 * PADDING + 1, (2, count), generator=generator).to(images.device)
    windows = windows.permute(0, 1, 2, 4, 5, 3)  # (n, 9, 9, H, W, C): whole rows of channels are copied
    return windows[torch.arange(count, device=images.device), top, left].permute(0, 3, 1, 2)  # -> (n, C, H, W)


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return each image mirrored left to right with probability one half; arguments as :func:`augment`."""
    chosen = torch.rand(len(images), generator=generator).to(images.device) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(3), images)
