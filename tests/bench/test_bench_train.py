"""Local training against the textbook loop: contiguous tensors, plain SGD, batches normalised as they come."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from modelfuse.client.data import Dataset
from modelfuse.client.models import create
from modelfuse.client.settings import TrainSettings
from modelfuse.client.sources.source import NORMALISATIONS
from modelfuse.client.train import Trainer

pytestmark = pytest.mark.bench

CPU = torch.device("cpu")
REPEATS = 3


def _images(count: int, channels: int, side: int, normalisation: str) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, channels, side, side), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (count,), generator=generator)
    return Dataset("noise", pixels, labels, tuple("0123456789"), NORMALISATIONS[normalisation])


def _textbook(architecture: str, data: Dataset, settings: TrainSettings) -> Callable[[], object]:
    network = create(architecture, 0)
    optimizer = torch.optim.SGD(network.parameters(), settings.lr, settings.momentum, weight_decay=2e-3)

    def epoch() -> None:
        for chosen in torch.randperm(len(data)).split(settings.batch_size):
            loss = functional.cross_entropy(network(data.batch(chosen)), data.labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def _best(epoch: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of a few epochs; the first one warms up."""
    epoch()
    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        epoch()
        seconds.append(time.process_time() - started)
    return min(seconds)


@pytest.mark.parametrize(
    ("architecture", "data", "batch_size", "augment"),
    [
        ("fednet", _images(3200, 3, 32, "cifar10"), 64, "crop-flip"),
        ("lenet", _images(800, 1, 28, "mnist"), 8, "none"),
        ("mlp:in=784,hidden=100-50,out=10", _images(8000, 1, 28, "mnist"), 8, "none"),
    ],
    ids=["fednet", "lenet", "mlp"],
)
def test_training_against_the_textbook_loop(architecture: str, data: Dataset, batch_size: int, augment: str) -> None:
    """Images per CPU second at one thread; ours augments where it says so, the textbook's loop never does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reference = len(data) / _best(_textbook(architecture, data, TrainSettings(batch_size=batch_size)))
        print(f"\n{architecture}, batch {batch_size}: textbook loop {reference:,.0f} images per CPU second")
        for precision in ("float32", "bf16"):
            settings = TrainSettings(batch_size=batch_size, augment=augment, precision=precision, weight_decay=2e-3)
            rate = len(data) / _best(Trainer(create(architecture, 0), data, settings, 0, CPU).run_epoch)
            print(f"  modelfuse, {augment}, {precision:<8} {rate:>7,.0f}   ratio {rate / reference:.2f}")
    finally:
        torch.set_num_threads(threads)
