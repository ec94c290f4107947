"""``modelfuse init``: the model that a server broadcasts before the first round."""

from __future__ import annotations

from typing import Annotated

import typer

from modelfuse.cli.options import OutputOption, SeedOption, SpecOption

__all__ = ["init"]


def init(
    context: typer.Context,
    architecture: Annotated[
        str,
        typer.Option(
            "--architecture",
            metavar="A",
            help="Architecture string, such as fednet or mlp:in=64,hidden=100-50,out=10, or python:PKG.MOD:FACTORY.",
        ),
    ],
    output: OutputOption,
    seed: SeedOption = 0,
    scheme: Annotated[
        str | None,
        typer.Option(
            "--scheme",
            help="xavier: Xavier-uniform, biases zero (default); torch: torch's own; a FACTORY's is its own.",
        ),
    ] = None,
    spec: SpecOption = None,
) -> None:
    """Make the freshly initialised model that all clients start from.

    \b
    Example:
      modelfuse init --architecture mlp:in=64,hidden=100-50,out=10,bias=false --seed 1 -o init.safetensors
    """
    from modelfuse import __version__
    from modelfuse.client.models import Network, Scheme, create, tensors_of
    from modelfuse.client.settings import pick
    from modelfuse.files.writer import check_output, save
    from modelfuse.spec.axes import read_spec
    from modelfuse.types import Metadata, Step

    check_output(output, [] if spec is None else [spec])
    network = create(architecture, seed, None if scheme is None else pick(scheme, Scheme, "--scheme"))
    known = network.architecture if isinstance(network, Network) else None
    given = read_spec(spec) if spec is not None else known.spec() if known is not None else None
    text = architecture if known is None else known.text
    said = {"architecture": text, "seed": seed} | ({} if scheme is None else {"scheme": scheme})
    history = (Step("init", __version__, said),)
    tensors = tensors_of(network)
    save(output, tensors, Metadata("model", text, None if given is None else given.to_json(), history=history))
    context.obj.say(f"{output}: {text}, {sum(array.size for array in tensors.values())} entries")
