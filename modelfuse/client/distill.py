"""Distillation: one network learns what an ensemble says of inputs, whose labels nobody needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from modelfuse.client.checks import outputs_of, readable
from modelfuse.client.data import Dataset
from modelfuse.client.evaluate import mixture
from modelfuse.client.settings import TrainSettings
from modelfuse.client.train import Objective, Trainer
from modelfuse.errors import ContentError, OptionError

__all__ = ["distill", "divergence", "require_temperature"]

COOLEST, HOTTEST = 1e-2, 1e3  # beyond, the softmax is a step, or flat, in float32


def divergence(temperature: float) -> Objective:
    """Return the loss of distillation: T² times the mean of KL(teachers ‖ student), both at temperature T.

    T² keeps the size of the gradients as the temperature rises. Targets are (n, C) probabilities, or (n, T, C).

    Args:
        temperature: T, above 0.

    Source: Hinton et al., Distilling the knowledge in a neural network (arXiv 1503.02531), section 2.
    """

    def loss(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        log_p = functional.log_softmax(network(inputs).float() / temperature, dim=-1).flatten(0, -2)  # (…, C) -> (n, C)
        return functional.kl_div(log_p, targets.flatten(0, -2), reduction="batchmean") * temperature**2

    return loss


def distill(
    student: nn.Module,
    teachers: Sequence[nn.Module],
    weights: Sequence[float],
    dataset: Dataset,
    settings: TrainSettings,
    temperature: float = 1.0,
    advance: Callable[[int], None] | None = None,
) -> float:
    """Train a network on the probabilities that the teachers' ensemble gives.

    Running statistics stay as they are: the inputs need not look like the data that these were taken from.

    Args:
        student: The network, holding the weights to start from; trained in place.
        teachers: Networks on the student's device, with as many outputs each as the student.
        weights: One positive weight a teacher.
        dataset: The inputs, at least one.
        settings: The recipe; no augmentation, since the teachers look at each input once.
        temperature: T, from 0.01 to 1000.
        advance: Told the number of examples after each batch of the teachers' and each epoch of the student's.

    Returns:
        The mean loss over the last epoch.

    Raises:
        OptionError: The temperature is out of range, an augmentation is asked for, or the student diverged.
        ContentError: There is no input, a network cannot read it, or they have unequally many outputs.
    """
    require_temperature(temperature)
    if settings.augment != "none":
        raise OptionError(f"--augment {settings.augment}", "the teachers see each input once", "Leave it out.")
    _require_equal_outputs([student, *teachers], dataset)
    with readable(dataset):
        targets = mixture(teachers, dataset, weights, temperature=temperature, advance=advance)
    if not torch.isfinite(targets).all():
        raise ContentError("the clients", "their outputs overflow on some inputs", "See which one with modelfuse eval.")
    trainer = Trainer(
        student,
        replace(dataset, labels=targets),
        settings,
        client=None,
        device=next(student.parameters()).device,
        objective=divergence(temperature),
        keep_statistics=True,
    )
    loss = float("nan")
    for _ in range(settings.epochs):
        loss = trainer.run_epoch()
        if advance is not None:
            advance(len(dataset))
    student.eval()
    return loss


def require_temperature(temperature: float) -> None:
    """Check the temperature.

    Raises:
        OptionError: It is out of range.
    """
    if not COOLEST <= temperature <= HOTTEST:
        raise OptionError(
            "--temperature", f"{temperature} is out of range", f"It must be from {COOLEST} to {HOTTEST:g}."
        )


def _require_equal_outputs(networks: Sequence[nn.Module], dataset: Dataset) -> None:
    if not len(dataset):
        raise ContentError("--data", "there are no examples to learn from", "Choose another split or partition.")
    widths = [outputs_of(network, dataset) for network in networks]
    if len(set(widths)) > 1:
        raise ContentError(
            "the models",
            f"the student has {widths[0]} outputs and the clients {', '.join(map(str, widths[1:]))}",
            "Distil models of the same classes.",
        )
