"""Which layer's outputs are the embedding, and how a feature map becomes a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from modelfuse.client.models import Network
from modelfuse.errors import ContentError, OptionError

__all__ = ["Embedding", "Pooling"]

Pooling: TypeAlias = Literal["flatten", "mean"]


@dataclass(frozen=True, slots=True)
class Embedding:
    """Where the embedding h = f(φ; x) of a network is taken.

    Args:
        module: A module's name, whose outputs are the embedding; None: where the architecture marks it.
        pooling: What becomes of a feature map (C, h, w): ``flatten`` keeps all C·h·w entries (the authors' code),
            ``mean`` leaves the C means. Vectors stay as they are.

    Source: FedProto, Problem Setting.
    """

    module: str | None = None
    pooling: Pooling = "flatten"

    def run(self, network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the embeddings of a batch, from one forward pass.

        Args:
            network: The network.
            inputs: (n, …), normalised.

        Returns:
            (n, C) logits and (n, d) embeddings.

        Raises:
            OptionError: The network does not say which layer is meant, or has no such module.
            ContentError: The module does not give one embedding for each example.
        """
        if self.module is None:
            if not isinstance(network, Network):
                raise OptionError(
                    "--embedding", "your own network does not mark its embedding", "Name the module whose output it is."
                )
            raw = network.represent(inputs)
            return network.classify(raw), self._vectors(raw, len(inputs))
        seen: list[Any] = []
        handle = self._submodule(network, self.module).register_forward_hook(lambda _, __, output: seen.append(output))
        try:
            logits = network(inputs)
        finally:
            handle.remove()
        if len(seen) != 1 or not isinstance(seen[0], Tensor):
            raise ContentError(
                f"--embedding {self.module}",
                f"it gave {len(seen)} outputs for a batch",
                "Name a module that runs once.",
            )
        return logits, self._vectors(seen[0], len(inputs))

    def _submodule(self, network: nn.Module, name: str) -> nn.Module:
        modules: dict[str, nn.Module] = dict(network.named_modules())
        if not name or name not in modules:
            known = ", ".join(filter(None, modules))
            raise OptionError(f"--embedding {name}", "the network has no such module", f"It has {known}.")
        return modules[name]

    def _vectors(self, raw: Tensor, count: int) -> Tensor:
        if raw.dim() < 2 or len(raw) != count:
            raise ContentError(
                "--embedding",
                f"{count} examples give an output of shape {'×'.join(map(str, raw.shape))}",
                "Name a module with one output for each example.",
            )
        if raw.dim() > 2 and self.pooling == "mean":
            return raw.flatten(2).mean(2)  # (n, C, h, w) -> (n, C)
        return raw.flatten(1)  # (n, C, h, w) -> (n, C·h·w)
