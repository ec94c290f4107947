"""Imports run one way, and the server side never meets torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "modelfuse"

ALLOWED = {
    "errors": set(),
    "types": {"errors"},
    "files": {"errors", "types"},
    "spec": {"errors", "types"},
    "core": {"errors", "types", "files", "spec"},
    "solvers": {"errors", "types", "files", "spec", "core"},
    "methods": {"errors", "types", "files", "spec", "core", "solvers"},
    "client": {"errors", "types", "files", "spec"},
    "reporting": {"errors", "types", "files", "spec"},
    "cli": {"errors", "types", "files", "spec", "core", "solvers", "methods", "client", "reporting"},
}
TORCH = {"torch", "torchvision"}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "modelfuse" else {node.module}
            )
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    room = _room(path)
    rooms = {name.split(".")[1] for name in _imports(path) if name.startswith("modelfuse.")}
    assert rooms - {room, "__version__"} <= ALLOWED[room]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_client_side_names_torch(path: Path) -> None:
    if _room(path) not in {"client", "cli"}:
        assert not {name.split(".")[0] for name in _imports(path)} & TORCH


def _loaded(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_help_loads_neither_torch_nor_scipy_nor_rich() -> None:
    loaded = _loaded("from modelfuse.cli.app import run\nrun(['--help'])")
    assert "modelfuse.cli.merge" in loaded
    assert not loaded & {"torch", "torchvision", "scipy", "sklearn", "rich.table", "numpy"}


def test_every_method_loads_without_torch() -> None:
    loaded = _loaded("from modelfuse.methods import METHODS, load\n[load(name) for name in METHODS]")
    assert "modelfuse.methods.fedfiot" in loaded
    assert not loaded & TORCH
