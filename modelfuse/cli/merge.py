"""``modelfuse merge``: clients' files in, one global model out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modelfuse.cli.merge_options import (
    AverageOption,
    BiasMeanOption,
    BiasPriorOption,
    ClassCountsOption,
    DirectionOption,
    EvenLogitsOption,
    FinalOption,
    FisherFloorOption,
    GammaOption,
    InnerItersOption,
    LamOption,
    MatchingOption,
    MaxWidthOption,
    OffDiagonalOption,
    PopularityCapOption,
    RefineOption,
    RefineSeedOption,
    RhoOption,
    SafeguardOption,
    Sigma0Option,
    SigmaOption,
    SweepOrdersOption,
    SweepSeedOption,
    SweepsOption,
    ThroughOption,
    WeightingOption,
)
from modelfuse.cli.options import (
    ArchitectureOption,
    DeviceOption,
    DownloadOption,
    JsonOption,
    LabelOption,
    OutputOption,
    PartitionOption,
    TrainedNormalizeOption,
    parse_labels,
)
from modelfuse.methods import METHODS

if TYPE_CHECKING:
    from modelfuse.cli.selection import Validation
    from modelfuse.methods.gather import Given

__all__ = ["merge"]

LARGEST = "largest"


def merge(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            help="The clients' models (or prototypes), with Fishers or Gram matrices, or folders of them.",
        ),
    ],
    output: OutputOption,
    method: Annotated[str, typer.Option("--method", "-m", metavar="METHOD", help=f"{', '.join(METHODS)}.")],
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write what happened, group by group, as JSON.")
    ] = None,
    orders: Annotated[
        Path | None, typer.Option("--orders", metavar="FILE", help="Write which global unit each local unit became.")
    ] = None,
    rho: RhoOption = None,
    lam: LamOption = None,
    inner_iters: InnerItersOption = None,
    matching: MatchingOption = None,
    average: AverageOption = None,
    safeguard: SafeguardOption = None,
    refine: RefineOption = None,
    refine_seed: RefineSeedOption = None,
    even_logits: EvenLogitsOption = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            metavar="FILE",
            help="largest (the client with most examples), or a model; several make a grid. fedfiot.",
        ),
    ] = None,
    gamma: GammaOption = None,
    sigma: SigmaOption = None,
    sigma0: Sigma0Option = None,
    sweeps: SweepsOption = None,
    seed: SweepSeedOption = None,
    sweep_orders: SweepOrdersOption = None,
    popularity_cap: PopularityCapOption = None,
    max_width: MaxWidthOption = None,
    bias_mean: BiasMeanOption = None,
    bias_prior: BiasPriorOption = None,
    direction: DirectionOption = None,
    through: ThroughOption = None,
    final: FinalOption = None,
    fisher_floor: FisherFloorOption = None,
    off_diagonal: OffDiagonalOption = None,
    weighting: WeightingOption = None,
    fisher: Annotated[
        list[Path] | None,
        typer.Option("--fisher", metavar="FILE", help="The Fisher of a foreign model; repeat in the models' order."),
    ] = None,
    num_examples: Annotated[
        str | None,
        typer.Option(
            "--num-examples",
            metavar="N,N,...",
            help="How many examples each model was trained on, in the models' order.",
        ),
    ] = None,
    class_counts: ClassCountsOption = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Merge only tensors called so, such as 'conv*'; repeatable."),
    ] = None,
    excepted: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="PATTERN", help="Merge all but the tensors called so; repeatable."),
    ] = None,
    rest: Annotated[
        Path | None,
        typer.Option("--rest", metavar="FILE", help="Take what is not merged from this model; default: leave it out."),
    ] = None,
    architecture: ArchitectureOption = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="A permutation spec as JSON, for any other network.")
    ] = None,
    validate: Annotated[
        str | None,
        typer.Option("--validate", metavar="DATA", help="Choose from a grid by accuracy on the partition's hold-out."),
    ] = None,
    partition: PartitionOption = None,
    normalize: TrainedNormalizeOption = None,
    device: DeviceOption = "auto",
    download: DownloadOption = False,
    label: LabelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge clients' models into one global model.

    Fishers and Gram matrices are paired with their models by the model_id that they carry; files may come in any order.
    An option that the method does not know is an error.

    \b
    fedavg    example-weighted mean, index by index
    fisher    Fisher-weighted mean, index by index
    regmean   each linear layer fitted to what the clients' layers say, by their Gram matrices;
              the rest the example-weighted mean
    fedfiot   units aligned by Fisher-weighted optimal transport, then the Fisher-weighted mean;
              kept only where it lowers the objective (--no-safeguard: always);
              --matching profiled prices a pair at the average that would follow, and
              --refine goes over all layers again, with what their units feed;
              --even-logits undoes what skewed labels taught the output layers
    pfnm      units matched under a Beta-Bernoulli process, layers may grow; the posterior mean
    fedma     the same, layer by layer: in one shot, or in rounds with retraining in between
              (--through GROUP for each group, then --final); modelfuse localize cuts the
              result back to a client's own units
    fedproto  the clients' prototype files: a mean for each class, over the clients that hold it

    A merge of a part (--only, --except) leaves the clients a layer of their own: train-client takes it as --overlay.

    \b
    Examples:
      modelfuse merge --method fedavg clients/*.safetensors -o global.safetensors
      modelfuse merge --method fedfiot clients/*.safetensors fishers/*.safetensors -o global.safetensors
      modelfuse merge --method fedfiot clients/*.safetensors fishers/*.safetensors -o global.safetensors \\
          --rho 0.2 --rho 0.3 --rho 0.4 --lam 1e-3 --lam 1e-4 \\
          --validate cifar10:data --partition split.safetensors --report report.json
      modelfuse merge --method regmean clients/ grams/ -o global.safetensors
      modelfuse merge --method fedma clients/*.safetensors -o global.safetensors --orders orders.safetensors
      modelfuse merge --method fedma --through conv1 clients/ -o round1/
      modelfuse merge --method fedma --final round8/ -o global.safetensors --orders orders.safetensors
      modelfuse merge --method fedproto prototypes/*.safetensors -o prototypes.safetensors
      modelfuse merge --method fedavg --except 'fc2.*' clients/*.safetensors -o body.safetensors
    """
    from modelfuse.cli.merge_inputs import read_class_counts, read_sweep_orders, whole_numbers
    from modelfuse.cli.merging import Job, run
    from modelfuse.cli.rounds import run_round
    from modelfuse.files.artifacts import open_kind
    from modelfuse.files.folders import clients_files
    from modelfuse.files.patterns import Patterns
    from modelfuse.files.writer import check_outputs

    options: dict[str, Any] = {
        "rho": rho,
        "lam": lam,
        "inner_iters": inner_iters,
        "matching": matching,
        "average": average,
        "safeguard": safeguard,
        "refine": refine,
        "refine_seed": refine_seed,
        "even_logits": even_logits,
        "gamma": gamma,
        "sigma": sigma,
        "sigma0": sigma0,
        "sweeps": sweeps,
        "seed": seed,
        "sweep_orders": None if sweep_orders is None else read_sweep_orders(sweep_orders),
        "popularity_cap": popularity_cap,
        "max_width": max_width,
        "bias_mean": bias_mean,
        "bias_prior": bias_prior,
        "direction": direction,
        "final": final,
        "fisher_floor": fisher_floor,
        "off_diagonal": off_diagonal,
        "weighting": weighting,
    }
    inputs = [
        *clients_files(files),
        *(fisher or []),
        *filter(None, (rest, class_counts, sweep_orders, partition)),
        *_data_files(validate),
        *(Path(each) for each in reference or [] if each != LARGEST),
    ]
    check_outputs(filter(None, (None if through else output, report, orders)), inputs)
    job = Job(
        method=method,
        options={name: value for name, value in options.items() if value not in (None, [])},
        given=replace(
            _opened(files, fisher or [], spec, architecture, reference or [LARGEST]),
            num_examples=None if num_examples is None else whole_numbers(num_examples, "--num-examples"),
            class_counts=None if class_counts is None else read_class_counts(class_counts),
            part=Patterns(tuple(only or ()), tuple(excepted or ())),
        ),
        validation=_validation(validate, partition, device, download, normalize),
        labels=parse_labels(label),
        rest=None if rest is None else open_kind(rest, "model"),
    )
    if through is None:
        run(job, output, report, orders, context.obj, as_json)
    else:
        run_round(job, through, output, report, orders, context.obj, as_json)


def _data_files(validate: str | None) -> list[Path]:
    if validate is None:
        return []
    from modelfuse.client.sources.strings import data_files

    return data_files(validate)


def _validation(
    validate: str | None, partition: Path | None, device: str, download: bool, normalize: str | None
) -> Validation | None:
    from modelfuse.cli.selection import Validation
    from modelfuse.errors import OptionError

    if validate is None and partition is None:
        return None
    if validate is None or partition is None:
        raise OptionError(
            "--validate", "it needs the partition whose hold-out it evaluates on", "Pass --validate and --partition."
        )
    return Validation(validate, partition, device, download, normalize)


def _opened(
    files: list[Path],
    fishers: list[Path],
    spec: Path | None,
    architecture: str | None,
    references: list[str],
) -> Given:
    from modelfuse.files.artifacts import open_kind
    from modelfuse.files.checkpoint import open_checkpoint
    from modelfuse.files.folders import clients_files
    from modelfuse.methods.gather import Given
    from modelfuse.spec.axes import read_spec

    return Given(
        files=[open_checkpoint(path) for path in clients_files(files)],
        fishers=[open_kind(path, "fisher") for path in fishers],
        spec=None if spec is None else read_spec(spec),
        architecture=architecture,
        references=[None if each == LARGEST else open_kind(Path(each), "model") for each in references],
    )
