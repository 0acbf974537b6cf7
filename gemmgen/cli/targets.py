"""Backends, targets and devices in options: checks and suggestions."""

from __future__ import annotations


def device_problems(device: str | None, tuned: bool) -> list[str]:
    """Problems with --device beside --tuned."""
    return [] if device is None or tuned else [f"--device {device} is for --tuned: add it, or leave out --device"]


def backend_problems(backend: str | None) -> list[str]:
    """Problems with --backend."""
    from gemmgen.backends import BACKENDS
    from gemmgen.errors import suggest

    if backend is None or backend in BACKENDS:
        return []
    return [f"backend {backend!r} does not exist: {suggest(backend, BACKENDS)}"]


def speaking(target: str) -> str | None:
    """The first backend that has a target of that name."""
    from gemmgen.backends import BACKENDS
    from gemmgen.backends import backend as find_backend

    return next((name for name in BACKENDS if target in find_backend(name).targets), None)


def no_target(name: str) -> str:
    """The message for an unknown target. Other commands may know the name."""
    from gemmgen.backends import BACKENDS
    from gemmgen.backends import backend as find_backend
    from gemmgen.errors import suggest
    from gemmgen.inspect.machine import machines, target_of
    from gemmgen.ir.target import TARGETS

    if name in BACKENDS:
        *others, last = find_backend(name).targets
        return f"target {name!r} is a backend, whose targets are {', '.join(others)} and {last}: use --backend {name}"
    if name in machines():
        backend, target = target_of(machines()[name])
        known = ", ".join(TARGETS)
        return (
            f"target {name!r} is a chip that gemmgen inspect compiles for; files are for families of them ({known}): "
            f"use --backend {backend} --target {target.name}"
        )
    return f"target {name!r} does not exist: {suggest(name, TARGETS)}"
