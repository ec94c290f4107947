"""The options of ``modelfuse merge`` that belong to methods; each help text ends in the methods that know it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AverageOption",
    "BiasMeanOption",
    "BiasPriorOption",
    "ClassCountsOption",
    "DirectionOption",
    "EvenLogitsOption",
    "FinalOption",
    "FisherFloorOption",
    "GammaOption",
    "InnerItersOption",
    "LamOption",
    "MatchingOption",
    "MaxWidthOption",
    "OffDiagonalOption",
    "PopularityCapOption",
    "RefineOption",
    "RefineSeedOption",
    "RhoOption",
    "SafeguardOption",
    "Sigma0Option",
    "SigmaOption",
    "SweepOrdersOption",
    "SweepSeedOption",
    "SweepsOption",
    "ThroughOption",
    "WeightingOption",
]

RhoOption = Annotated[
    list[float] | None,
    typer.Option("--rho", help="Tempering ρ in (0, 1]; several make a grid. fedfiot (default 0.3), fisher (1: raw)."),
]
LamOption = Annotated[
    list[float] | None,
    typer.Option("--lam", help="Damping λ; several make a grid. fedfiot (default 1e-4), fisher (0)."),
]
InnerItersOption = Annotated[
    int | None, typer.Option("--inner-iters", help="S, iterations per group, and sweeps (default 8). fedfiot.")
]
MatchingOption = Annotated[
    str | None,
    typer.Option("--matching", help="fisher (default), profiled, euclidean (ablation C) or identity (B). fedfiot."),
]
AverageOption = Annotated[
    str | None,
    typer.Option(
        "--average",
        help="fisher (default) or uniform (ablations D, E; fedfiot); posterior (the authors' code for CNNs), uniform "
        "(the paper) or recurrent (their code for LSTMs); default: as their code does for the network (fedma).",
    ),
]
SafeguardOption = Annotated[
    bool | None,
    typer.Option(
        "--safeguard/--no-safeguard",
        help="Keep the identity merge where its objective is lower (the default). fedfiot.",
    ),
]
RefineOption = Annotated[
    bool | None,
    typer.Option("--refine/--no-refine", help="Re-match all groups with outgoing weights as well. fedfiot."),
]
RefineSeedOption = Annotated[
    int | None, typer.Option("--refine-seed", help="Seed of the order in which --refine visits. fedfiot.")
]
EvenLogitsOption = Annotated[
    bool | None,
    typer.Option(
        "--even-logits/--no-even-logits",
        help="Take from the output layers what prefers a class whatever the input. fedfiot.",
    ),
]
FisherFloorOption = Annotated[
    float | None, typer.Option("--fisher-floor", help="Least summed Fisher that is trusted. fisher.")
]
OffDiagonalOption = Annotated[
    list[float] | None,
    typer.Option(
        "--off-diagonal",
        help="What Gram entries beside the diagonal are multiplied by (default 0.9); several make a grid. regmean.",
    ),
]
WeightingOption = Annotated[
    str | None,
    typer.Option("--weighting", help="examples or uniform (fedavg); uniform, count or paper (fedproto)."),
]
GammaOption = Annotated[
    list[float] | None,
    typer.Option("--gamma", help="Mass γ0: larger, wider (default 7; LSTMs 1e-3); several make a grid. pfnm, fedma."),
]
SigmaOption = Annotated[
    list[float] | None,
    typer.Option("--sigma", help="Variance σ² of units around global ones (default 1); a grid too. pfnm, fedma."),
]
Sigma0Option = Annotated[
    list[float] | None,
    typer.Option("--sigma0", help="Variance σ0² of the global units (default 1); a grid too. pfnm, fedma."),
]
SweepsOption = Annotated[
    int | None, typer.Option("--sweeps", help="Refinement sweeps over the clients (default 5). pfnm, fedma.")
]
SweepSeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the order in which sweeps visit the clients. pfnm, fedma.")
]
SweepOrdersOption = Annotated[
    Path | None,
    typer.Option(
        "--sweep-orders",
        metavar="FILE.json",
        help="These orders instead: an object of groups, a list of clients for each sweep. pfnm, fedma.",
    ),
]
PopularityCapOption = Annotated[
    int | None,
    typer.Option("--popularity-cap", help="Clients beyond which a unit attracts no more (default 10). pfnm, fedma."),
]
MaxWidthOption = Annotated[
    int | None,
    typer.Option(
        "--max-width",
        help="Global units from which a client may open one more only (default 700; 0: none). pfnm, fedma.",
    ),
]
BiasMeanOption = Annotated[
    float | None, typer.Option("--bias-mean", help="Prior mean of the biases (default 0.1). pfnm, fedma.")
]
BiasPriorOption = Annotated[
    str | None,
    typer.Option(
        "--bias-prior",
        help="bias (default), or ibm: beyond the first layer on the first weight, as FedMA's code has it. pfnm, fedma.",
    ),
]
DirectionOption = Annotated[
    str | None,
    typer.Option(
        "--direction",
        help="auto (default: top-down for fully connected networks), top-down (PFNM) or bottom-up (its extension "
        "to convolutions). pfnm.",
    ),
]
ThroughOption = Annotated[
    str | None,
    typer.Option(
        "--through",
        metavar="GROUP",
        help="One layer-wise round: match this group, the next one, and write every client back into the folder OUT, "
        "for train-client --freeze-through GROUP. fedma.",
    ),
]
FinalOption = Annotated[
    bool | None, typer.Option("--final", help="The last round: average the output layer of the clients. fedma.")
]
ClassCountsOption = Annotated[
    Path | None,
    typer.Option(
        "--class-counts",
        metavar="FILE.json",
        help="Examples of each class, one list a model, in the models' order; for files that do not say. pfnm, fedma.",
    ),
]
