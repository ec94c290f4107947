"""Networks as files have them: their initialisation, and the way from and to tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from modelfuse.client.factory import PREFIX, call_factory
from modelfuse.client.network import Network, build
from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.spec.architectures import parse_architecture
from modelfuse.spec.rows import GATES
from modelfuse.types import Tensors

if TYPE_CHECKING:
    from modelfuse.files.checkpoint import Checkpoint

__all__ = [
    "Network",
    "Scheme",
    "build",
    "create",
    "initialize",
    "load_network",
    "load_tensors",
    "tensors_of",
]

Scheme = Literal["xavier", "torch"]


def initialize(network: nn.Module, seed: int, scheme: Scheme = "xavier") -> None:
    """Fill a network with random weights, in place, without touching the global random state.

    Args:
        network: The network.
        seed: Seed of the generator that all weights are drawn from, in the order of the modules.
        scheme: ``xavier``: weights Xavier-uniform (an LSTM's gate by gate), biases zero; ``torch``: torch's defaults.

    Source: FedFiOT app. C.1 (xavier).
    """
    with _seeded(seed), torch.no_grad():
        for module in network.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
        if scheme == "torch":
            return
        generator = torch.Generator().manual_seed(seed)
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dim() > 1:
                    for gate in parameter.chunk(GATES if isinstance(module, nn.LSTM) else 1):
                        nn.init.xavier_uniform_(gate, generator=generator)
                elif "bias" in name:
                    nn.init.zeros_(parameter)


def create(text: str, seed: int, scheme: Scheme | None = None) -> nn.Module:
    """Return a freshly initialised network.

    Args:
        text: An architecture string, or ``python:PKG.MOD:FACTORY`` for a user's own module.
        seed: Seed of the weights.
        scheme: As :func:`initialize`; None: xavier, and for a user's own module whatever its factory does.

    Raises:
        OptionError: The string names no architecture, or its factory returns no module.
    """
    if not text.startswith(PREFIX):
        network = build(parse_architecture(text))
        initialize(network, seed, scheme or "xavier")
        return network
    with _seeded(seed):
        own = _own_module(text)
    if scheme is not None:
        initialize(own, seed, scheme)
    return own


def tensors_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Return a copy of a module's state as arrays, by name, in the order of its state_dict."""
    return {name: _to_numpy(tensor.detach().cpu()) for name, tensor in module.state_dict().items()}


def load_tensors(module: nn.Module, tensors: Tensors, where: str) -> None:
    """Copy arrays into a module's state, in place; values are converted to the module's dtypes.

    Args:
        module: The module.
        tensors: One array for each name of its state_dict.
        where: The file's name, for messages.

    Raises:
        ContentError: A tensor is missing, unknown, of another shape, or not finite.
    """
    state = module.state_dict()
    fix = "Pass the --architecture it was trained with."
    for name in state.keys() - tensors.keys():
        raise ContentError(where, f"tensor {name} is missing", fix)
    for name in tensors.keys() - state.keys():
        raise ContentError(where, f"the architecture has no tensor {name}", fix)
    with torch.no_grad():
        for name, target in state.items():
            array = np.asarray(tensors[name])
            if array.shape != tuple(target.shape):
                raise ContentError(
                    where, f"{name} has shape {array.shape} and the architecture {tuple(target.shape)}", fix
                )
            source = _to_torch(array)
            if not torch.isfinite(source).all():
                raise ContentError(where, f"{name} holds NaN or infinity", "Train the model again, at a lower rate.")
            target.copy_(source)


def load_network(checkpoint: Checkpoint, architecture_text: str | None, device: torch.device) -> nn.Module:
    """Return the network that a checkpoint holds, in evaluation mode.

    Args:
        checkpoint: The open file.
        architecture_text: What the user typed for it; None: what the file's metadata says. Widths come from the shapes.
        device: Where the network goes.

    Raises:
        OptionError: Nobody says which architecture it is, or only the file says that it needs a user's own code.
        FileError: The file holds a part of a model only.
        ContentError: The tensors do not fit the architecture.
    """
    stated = checkpoint.metadata.architecture if checkpoint.metadata else None
    text = architecture_text or stated
    if text is None:
        raise OptionError(checkpoint.label, "the file does not say its architecture", "Pass --architecture.")
    if text.startswith(PREFIX) and architecture_text is None:
        # a file must not decide that code runs: only what the user typed is imported
        raise OptionError(checkpoint.label, f"the model runs your own code, {text}", f"Pass --architecture {text}.")
    if text.startswith(PREFIX):
        with _seeded(0):
            network = _own_module(text)
    else:
        where = "--architecture" if architecture_text else checkpoint.label
        network = build(parse_architecture(text, where).resized(checkpoint.shapes()))
    if checkpoint.metadata and checkpoint.metadata.details.get("partial"):
        raise FileError(
            checkpoint.label,
            "it holds a part of a model",
            "Merge with --rest FILE, or train with --overlay on a model.",
        )
    load_tensors(network, checkpoint.read_all(), checkpoint.label)
    return network.to(device).eval()


def _own_module(text: str) -> nn.Module:
    module = call_factory(text, "--architecture")
    if not isinstance(module, nn.Module):
        raise OptionError(
            "--architecture", f"{text} returned {type(module).__name__}", "Let it return a torch.nn.Module."
        )
    return module


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    # torch's own initialisers draw from the global generator only: lend it, and put its state back
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _to_numpy(tensor: Tensor) -> NDArray[Any]:
    if tensor.dtype == torch.bfloat16:  # numpy's bfloat16 is ml_dtypes'
        return np.array(_to_numpy(tensor.view(torch.int16)).view(ml_dtypes.bfloat16))
    return np.array(tensor.numpy(), order="C")  # a copy, also of a channels-last weight


def _to_torch(array: NDArray[Any]) -> Tensor:
    known = array.dtype.kind in "iub" or array.dtype in (np.float16, np.float32, np.float64)
    return torch.from_numpy(np.array(array if known else array.astype(np.float32), order="C"))  # 0-d stays 0-d
