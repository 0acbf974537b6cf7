"""Whether a kernel on tiles uses its pipes as the pipelining pass expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from gemmgen.errors import KernelFault
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.show import headline
from gemmgen.ir.stmt import Block, Body, CooperativeCopy, For, FragmentLoad, If, Mma, Stmt, Tile, TileMma
from gemmgen.ir.synchronization import Pipe, PipeOp, PipeVerb
from gemmgen.ir.walk import bodies, of_kind

#: The last verb on each pipe, by the pipe's name; `release` (a free slot) where there was none.
_State = dict[str, PipeVerb]
#: Every pipe of the kernel, by name.
_Pipes = Mapping[str, Pipe]

#: What must have come last before each verb.
_BEFORE: dict[PipeVerb, PipeVerb] = {"acquire": "release", "commit": "acquire", "wait": "commit", "release": "wait"}


def check_pipes(kernel: Kernel) -> None:
    """Check that verbs come in the order acquire, commit, wait, release on each pipe, that its slots are
    filled (and nothing else) between acquire and commit and read between wait and release, and that every
    loop body and branch leaves each pipe as it found it.

    Raises: KernelFault of kind `pipe`.
    """
    last: _State = {}
    pipes = {stmt.pipe.name: stmt.pipe for stmt in of_kind(PipeOp, kernel.body)}
    _check_body(kernel.body, pipes, last)
    for name, verb in last.items():
        if verb != "release":
            raise KernelFault("pipe", f"kernel {kernel.name}", f"pipe {name} ends after {verb}, with no release")


def _check_body(body: Body, pipes: _Pipes, last: _State) -> None:
    for stmt in body:
        match stmt:
            case PipeOp(verb, pipe):
                _step(stmt, verb, pipe, last)
            case For() | If() | Block():
                for inner in bodies(stmt):
                    _check_block(stmt, inner, pipes, last)
            case _:
                _check_fill(stmt, pipes, last)
                for pipe in _reads(stmt):
                    _expect(stmt, pipe, "wait", "is read", "between wait and release", last)


def _check_block(stmt: Stmt, body: Body, pipes: _Pipes, last: _State) -> None:
    """A loop runs any number of times and a branch perhaps not at all: neither may change a pipe's state."""
    inner = dict(last)
    _check_body(body, pipes, inner)
    for name, verb in inner.items():
        before = last.get(name, "release")
        if verb != before:
            _fault(stmt, f"pipe {name} enters the body after {before} and leaves it after {verb}")


def _step(stmt: Stmt, verb: PipeVerb, pipe: Pipe, last: _State) -> None:
    before = last.get(pipe.name, "release")
    if before != _BEFORE[verb]:
        _fault(stmt, f"{verb} on pipe {pipe.name} must follow {_BEFORE[verb]}, not {_since(pipe, last)}")
    last[pipe.name] = verb


def _check_fill(stmt: Stmt, pipes: _Pipes, last: _State) -> None:
    """A slot is filled while it is open; and while one of several slots is open, nothing else is filled:
    the producer runs ahead of the consumer, and would overwrite what has no slots.
    """
    if not isinstance(stmt, CooperativeCopy | FragmentLoad):
        return
    own = stmt.dst.pipe
    if own is not None:
        _expect(stmt, own, "acquire", "is filled", "between acquire and commit", last)
    for name, pipe in pipes.items():
        if pipe.stages > 1 and last.get(name) == "acquire" and (own is None or own.name != name):
            _fault(stmt, f"{stmt.dst.buffer.name} is filled ahead of its use with pipe {name}, but is no slot of it")


def _reads(stmt: Stmt) -> Iterator[Pipe]:
    match stmt:
        case CooperativeCopy() | FragmentLoad():
            if stmt.src.pipe is not None:
                yield stmt.src.pipe
        case TileMma(_, one, other):
            yield from (x.pipe for x in (one, other) if isinstance(x, Tile) and x.pipe is not None)
        case Mma(_, a, b):
            yield from (registers.pipe for registers in (a, b) if registers.pipe is not None)


def _expect(stmt: Stmt, pipe: Pipe, verb: PipeVerb, what: str, where: str, last: _State) -> None:
    if last.get(pipe.name) != verb:
        _fault(stmt, f"a slot of pipe {pipe.name} {what} after {_since(pipe, last)}, not {where}")


def _since(pipe: Pipe, last: _State) -> str:
    return last.get(pipe.name) or "no verb at all"


def _fault(stmt: Stmt, detail: str) -> NoReturn:
    raise KernelFault("pipe", headline(stmt), detail)
