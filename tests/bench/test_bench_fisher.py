"""The Fisher pass against one plain training epoch, and against one backward pass an example."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from networks import dataset_of
from torch.nn import functional

from modelfuse.client.fisher import diagonal_fisher
from modelfuse.client.models import create
from modelfuse.client.settings import TrainSettings
from modelfuse.client.train import Trainer
from modelfuse.spec.architectures import parse_architecture

pytestmark = pytest.mark.bench

REPEATS = 3


def examples_a_second(work: Callable[[], object], count: int) -> float:
    """Return the best of a few runs, in examples per second of CPU time."""
    work()  # warm up
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return count / min(times)


@pytest.mark.parametrize(("text", "count"), [("fednet", 2048), ("lenet", 2048), ("vgg9", 256)])
def test_fisher_against_training_and_against_a_loop(text: str, count: int) -> None:
    dataset = dataset_of(parse_architecture(text), count)
    network = create(text, 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so that CPU time is what a core does
    try:
        trainer = Trainer(network, dataset, TrainSettings(lr=1e-4), 0, torch.device("cpu"))
        training = examples_a_second(trainer.run_epoch, count)
        fisher = examples_a_second(lambda: diagonal_fisher(network, dataset), count)

        totals = [torch.zeros_like(parameter) for parameter in network.parameters()]

        def loop() -> None:
            for number in range(32):
                inputs, label = dataset.batch(slice(number, number + 1)), dataset.labels[number : number + 1]
                network.zero_grad()
                functional.cross_entropy(network(inputs), label).backward()
                for total, parameter in zip(totals, network.parameters(), strict=True):
                    if parameter.grad is not None:
                        total.addcmul_(parameter.grad, parameter.grad)

        one_by_one = examples_a_second(loop, 32)
    finally:
        torch.set_num_threads(threads)
    print(
        f"\n{text}, examples per CPU second: training epoch {training:,.0f}, Fisher {fisher:,.0f} "
        f"({training / fisher:.2f} epochs; at most 2.5 wanted), one pass an example {one_by_one:,.0f} "
        f"({fisher / one_by_one:.1f}× slower)"
    )
