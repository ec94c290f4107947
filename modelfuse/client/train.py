"""Local training of one client, epoch by epoch, so that it can be saved and resumed between any two."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd

from modelfuse.client.augment import augment
from modelfuse.client.data import Dataset
from modelfuse.client.models import load_tensors, tensors_of
from modelfuse.client.seeds import derived_seed
from modelfuse.client.settings import TrainSettings
from modelfuse.errors import OptionError
from modelfuse.types import Tensors

__all__ = ["Objective", "Trainer", "cross_entropy", "train_every"]

Objective: TypeAlias = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(network, inputs, labels) to the mean loss of a batch."""

PREPARED_BYTES = 2 << 30  # normalise a client's examples once and for all, up to this size


def cross_entropy(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of a batch; (N, T, C) logits of sequences count every step."""
    logits = network(inputs)
    return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())  # (…, C) -> (n, C)


def train_every(name: str) -> bool:  # noqa: ARG001  (it is the predicate that is true of every name)
    """Return that a parameter trains: all of them do."""
    return True


class Trainer:
    """Trains a network on one client's examples.

    What an epoch does depends on the seed, the client, the epoch's number and the state before it, and on nothing else.

    Args:
        network: The network, holding the weights to start from; trained in place.
        dataset: The client's examples, at least one.
        settings: The recipe.
        client: The client's number, or None for a network that is nobody's.
        device: Where to compute.
        objective: The loss of a batch.
        trainable: Says of each parameter's name whether it trains; the others stay exactly as they are, and so do the
            running statistics of a normalisation none of whose parameters trains.
        keep_statistics: Running statistics stay as they are, whatever trains.

    Raises:
        OptionError: An augmentation of images is asked for, and the examples are none.
    """

    def __init__(
        self,
        network: nn.Module,
        dataset: Dataset,
        settings: TrainSettings,
        client: int | None,
        device: torch.device,
        objective: Objective = cross_entropy,
        trainable: Callable[[str], bool] = train_every,
        keep_statistics: bool = False,
    ) -> None:
        self.epoch = 0
        self.network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._settings = settings
        self._client = client
        self._objective = objective
        self._device = device
        if settings.augment != "none" and dataset.inputs.dim() != 4:
            raise OptionError(f"--augment {settings.augment}", "the examples are no images", "Leave it out.")
        self._dataset = dataset.to(device)
        self._inputs = self._prepare()
        self._black = self._dataset.black()
        self._parameters = {
            name: parameter
            for name, parameter in network.named_parameters()
            if parameter.requires_grad and trainable(name)
        }
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name in self._parameters)
        self._still = [
            module
            for module in network.modules()
            if _is_still(module) or (keep_statistics and getattr(module, "running_mean", None) is not None)
        ]
        self._anchors = [p.detach().clone() for p in self._parameters.values()] if settings.prox_mu else []
        self._momenta: dict[str, Tensor | None] = dict.fromkeys(self._parameters)

    def run_epoch(self) -> float:
        """Train for one epoch.

        Returns:
            The mean loss over the epoch's examples, as they were met.

        Raises:
            OptionError: The loss is no longer finite.
        """
        seed = derived_seed(self._settings.seed, self._client or 0, self.epoch)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self._dataset), generator=generator)
        total = torch.zeros((), device=self._device)
        self.network.train()
        for module in self._still:
            module.eval()
        with _reproducible(seed, self._device):
            for chosen in torch.split(order, self._settings.batch_size):
                total += self._step(chosen.to(self._device), generator) * len(chosen)
        self.epoch += 1
        loss = float(total) / len(self._dataset)
        if not math.isfinite(loss) or not all(bool(p.isfinite().all()) for p in self._parameters.values()):
            who = "the network" if self._client is None else f"client {self._client}"
            raise OptionError(
                f"--lr {self._settings.lr}",
                f"{who} diverged: its loss is {loss} in epoch {self.epoch}",
                "Lower the learning rate.",
            )
        return loss

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the network's state as arrays."""
        return tensors_of(self.network)

    def momenta(self) -> dict[str, NDArray[Any]]:
        """Return the optimiser's buffers as arrays, by the names of their parameters."""
        return {
            name: np.array(buffer.cpu().numpy(), order="C")
            for name, buffer in self._momenta.items()
            if buffer is not None
        }

    def resume(self, epoch: int, weights: Tensors, momenta: Mapping[str, NDArray[Any]], where: str) -> None:
        """Continue from what :meth:`weights` and :meth:`momenta` returned after an epoch.

        Args:
            epoch: How many epochs were done.
            weights: The network's state.
            momenta: The optimiser's buffers.
            where: The file that they come from, for messages.

        Raises:
            ContentError: The weights do not fit the network.
        """
        load_tensors(self.network, weights, where)
        for name, buffer in momenta.items():
            parameter = self._parameters[name]
            self._momenta[name] = torch.empty_like(parameter).copy_(torch.from_numpy(buffer))
        self.epoch = epoch

    def _step(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        inputs = self._dataset.batch(chosen) if self._inputs is None else self._inputs[chosen]
        if self._settings.augment != "none":
            inputs = augment(inputs, self._settings.augment, self._black, generator)
        bf16 = self._settings.precision == "bf16"
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = self._objective(self.network, inputs, self._dataset.labels[chosen])
        for parameter in self._parameters.values():
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        if self._settings.prox_mu:
            self._add_proximal_gradient()
        if self._settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.clip_norm)
        self._descend()
        return loss.detach()

    def _descend(self) -> None:
        """Take a step of gradient descent; parameters that the loss does not depend on stay."""
        trained = {name: parameter for name, parameter in self._parameters.items() if parameter.grad is not None}
        buffers = [self._momenta[name] for name in trained]
        with torch.no_grad():
            # the functional form: an optimiser object would import torch's compiler, which takes seconds
            sgd(
                list(trained.values()),
                [parameter.grad for parameter in trained.values() if parameter.grad is not None],
                buffers,
                has_sparse_grad=False,
                foreach=False,
                fused=self._device.type in ("cpu", "cuda"),
                weight_decay=self._settings.weight_decay,
                momentum=self._settings.momentum,
                lr=self._settings.rate(self.epoch),
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        self._momenta.update(zip(trained, buffers, strict=True))

    def _add_proximal_gradient(self) -> None:
        """Add μ (w − w_global), the gradient of FedProx's term, exactly.

        Source: FedProx (arXiv 1812.06127) eq. 2.
        """
        with torch.no_grad():
            for parameter, anchor in zip(self._parameters.values(), self._anchors, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - anchor, alpha=self._settings.prox_mu)

    def _prepare(self) -> Tensor | None:
        """Return all examples normalised, or None where they are too many and are normalised batch by batch."""
        if self._dataset.inputs.numel() * 4 > PREPARED_BYTES:
            return None
        inputs = self._dataset.batch(slice(None))
        return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _is_still(module: nn.Module) -> bool:
    own = list(module.parameters(recurse=False))
    return bool(own) and not any(parameter.requires_grad for parameter in own)


@contextmanager
def _reproducible(seed: int, device: torch.device) -> Iterator[None]:
    # dropout draws from the global generators only: lend them a seed, and put their state back
    cuda = [device] if device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices=cuda),
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
    ):
        torch.manual_seed(seed)
        yield
