"""Print the command lines of a federation of many rounds, for ``modelfuse run -``.

Every round is a step a line: train all clients, take their prototypes, merge, and now and then judge. The clients'
models of two rounds lie in two folders that take turns.

    python rounds.py --method fedproto --data mnist:ROOT --split split.safetensors --out build/x | modelfuse run -
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

WIDTHS = {"width=18": 0.35, "width=20": 0.7, "width=22": 1.0}
"""FedProto-mh's CNN: up to which share of the clients the second convolution has how many filters (authors' code)."""

STRIDES = {"stride=1,pool=4": 0.5, "stride=2,pool=2": 1.0}
"""FedProto-mh's ResNet-18: up to which share of the clients the strides are these (authors' code)."""


@dataclass(frozen=True)
class Federation:
    """What all lines share.

    Args:
        method: local, fedavg, fedprox, fedper, fedrep, fedproto or fedproto-mh.
        data: The data string.
        split: The partition's file.
        out: The folder to work in.
        clients: How many there are.
        seed: Of the initial weights and of training.
        rounds: How many.
        every: Judge after every so many rounds, and after the last.
        network: The architecture string.
        recipe: Words of local training.
        weight: λ.
        mu: FedProx's μ.
        shared: Pattern of the tensors that FedPer and FedRep share. The convolutions of the CNN are 5,280 entries a
            client, which is the 106·10³ of 20 clients in tab. 1.
        head: Pattern of the others, which FedRep trains in turns with these.
        words: Further words for every line that reads data.
        labels: Further labels of the results.
    """

    method: str
    data: str
    split: str
    out: str
    clients: int
    seed: int
    rounds: int
    every: int
    network: str
    recipe: tuple[str, ...]
    weight: float
    mu: float
    shared: str
    head: str
    words: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the command lines."""
        if self.method == "local":
            yield self.train((*self.fresh(), "--client", "all"), self.rounds, 1, self.folder(self.rounds))
            yield self.judge(self.folder(self.rounds), self.rounds)
            return
        if self.method in ("fedavg", "fedprox", "fedper", "fedrep"):
            yield ("init", "--architecture", self.network, "--seed", str(self.seed), "-o", self.file("global"))
        for number in range(1, self.rounds + 1):
            yield from getattr(self, f"round_of_{self.method.replace('-', '_')}")(number)

    def round_of_fedproto(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield a round in which clients exchange prototypes alone."""
        start = self.fresh() if number == 1 else self.towards(number)
        yield self.train((*start, "--client", "all"), 1, number, self.folder(number))
        yield from self.exchange(number)

    def round_of_fedproto_mh(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield the same for clients of unlike networks: they differ in what they start from."""
        if number > 1:
            yield from self.round_of_fedproto(number)
            return
        first = 0
        for setting, share in (STRIDES if self.network.startswith("resnet18") else WIDTHS).items():
            behind = round(share * self.clients)
            whose = ("--client", ",".join(map(str, range(first, behind))))
            own = ("--architecture", f"{self.network}{',' if ':' in self.network else ':'}{setting}")
            yield self.train((*own, "--init-seed", str(self.seed), *whose), 1, 1, self.folder(1))
            first = behind
        yield from self.exchange(1)

    def exchange(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield what follows local training."""
        own = self.folder(number)
        yield ("prototypes", own, *self.reading(), "--client", "all", "-o", self.folder_of("prototypes"))
        yield ("merge", "-m", "fedproto", self.folder_of("prototypes"), "-o", self.file("prototypes"))
        if self.due(number):
            yield self.judge(own, number, "--prototypes", self.file("prototypes"))

    def round_of_fedavg(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield a round in which one model is everybody's."""
        prox = ("--prox-mu", str(self.mu)) if self.method == "fedprox" else ()
        yield self.train((self.file("global"), *prox, "--client", "all"), 1, number, self.folder(number))
        yield ("merge", "-m", "fedavg", self.folder(number), "-o", self.file("global"))
        if self.due(number):
            yield self.judge(self.file("global"), number, "--personal")

    round_of_fedprox = round_of_fedavg

    def round_of_fedper(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield a round in which the body is everybody's, and the rest each client's own."""
        yield self.train((*self.under_body(number), "--client", "all"), 1, number, self.folder(number))
        yield from self.share_body(number)

    def round_of_fedrep(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield the same with the own part and the shared part trained in turns."""
        head, body = self.folder_of("head"), ("--train-only", self.shared)
        own = ("--train-only", self.head)
        yield self.train((*self.under_body(number), *own, "--client", "all"), 1, 2 * number, head)
        yield self.train((head, *body, "--client", "all"), 1, 2 * number + 1, self.folder(number))
        yield from self.share_body(number)

    def under_body(self, number: int) -> tuple[str, ...]:
        """Return what a client starts from: its own model under the shared body."""
        return (self.file("global"),) if number == 1 else (self.folder(number - 1), "--overlay", self.file("body"))

    def share_body(self, number: int) -> Iterator[tuple[str, ...]]:
        """Yield the merge of the bodies."""
        own = self.folder(number)
        yield ("merge", "-m", "fedavg", "--only", self.shared, own, "-o", self.file("body"))
        if self.due(number):
            yield self.judge(own, number, "--personal")

    def fresh(self) -> tuple[str, ...]:
        """Return what gives each client weights of its own."""
        return ("--architecture", self.network, "--init-seed", str(self.seed))

    def towards(self, number: int) -> tuple[str, ...]:
        """Return what sets each client's own model of the last round on its way to the global prototypes."""
        return (
            self.folder(number - 1), "--prototypes", self.file("prototypes"), "--proto-weight", str(self.weight),
        )  # fmt: skip

    def train(self, start: tuple[str, ...], epochs: int, stream: int, output: str) -> tuple[str, ...]:
        """Return a line of local training; ``stream`` keeps the draws of rounds apart."""
        seed = ("--seed", str(1000 * self.seed + stream))
        return ("train-client", *start, *self.reading(), "-E", str(epochs), *self.recipe, *seed, "-o", output)

    def judge(self, models: str, number: int, *how: str) -> tuple[str, ...]:
        """Return a line that judges every client on its own test examples."""
        labels = (f"method={self.method}", f"round={number}", f"seed={self.seed}", *self.labels)
        said = [word for label in labels for word in ("--label", label)]
        output = f"{self.out}/eval-{number}.json"
        return ("eval", models, *self.reading(), *(how or ("--personal",)), *said, "-o", output)

    def reading(self) -> tuple[str, ...]:
        """Return the words that say whose examples are whose."""
        return ("--data", self.data, "--partition", self.split, *self.words)

    def due(self, number: int) -> bool:
        """Return whether a round ends with a judgement."""
        return number % self.every == 0 or number == self.rounds

    def folder(self, number: int) -> str:
        """Return where the clients' models of a round are."""
        return self.folder_of(f"clients-{'odd' if number % 2 else 'even'}")

    def folder_of(self, name: str) -> str:
        """Return a folder of clients' files."""
        return f"{self.out}/{name}/"

    def file(self, name: str) -> str:
        """Return a file of the server's."""
        return f"{self.out}/{name}.safetensors"


def main() -> None:
    """Read the options and print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--network", default="fedproto-cnn")
    parser.add_argument("--recipe", default="--lr 0.01 --momentum 0.5 --batch-size 8", type=shlex.split)
    parser.add_argument("--weight", type=float, default=1.0, help="λ")
    parser.add_argument("--mu", type=float, default=0.01, help="FedProx's μ")
    parser.add_argument("--shared", default="conv*", help="pattern of what FedPer and FedRep share")
    parser.add_argument("--head", default="fc*", help="pattern of what FedPer and FedRep keep")
    parser.add_argument("--words", default="", type=shlex.split, help="further words for lines that read data")
    parser.add_argument("--labels", default="", type=shlex.split, help="further labels of the results, KEY=VALUE …")
    options = vars(parser.parse_args())
    options |= {key: tuple(options[key]) for key in ("recipe", "words", "labels")}
    for line in Federation(**options).lines():
        print(shlex.join(line))


if __name__ == "__main__":
    main()
