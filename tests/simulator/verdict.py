"""Who noticed that a run went wrong: an invariant, a client, the demand for progress, or only the product itself."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[2]
_SIMULATOR = Path("tests/simulator")


class Witness(Enum):
    INVARIANT = "invariant"
    CLIENT = "client"
    #: What a mutation's own story demands.
    PROPERTY = "stated property"
    #: After everything healed, something did not happen in time, or the replicas differ.
    HEALED = "after healing"
    #: An assertion or another exception of the product: good, but no proof that the simulator would have seen it.
    PRODUCT = "the product notices itself"


class Verdict(NamedTuple):
    witness: Witness
    #: The invariant's or client's module, or file and function.
    where: str
    message: str
    #: The check that failed: "file:line".
    location: str

    @property
    def counts(self) -> bool:
        """Whether it proves a mutation."""
        return self.witness is not Witness.PRODUCT

    def is_like(self, other: Verdict) -> bool:
        """The same check failed, though offsets and terms may be others."""
        return (self.witness, self.where, self.location) == (other.witness, other.where, other.location)

    def __str__(self) -> str:
        return f"{self.witness.value}: {self.where}"


def verdict_of(failure: BaseException) -> Verdict:
    """The innermost cause decides: the loop wraps what was raised in a node's callback."""
    *_, error = causes(failure)
    frames = [
        (Path(frame.filename).relative_to(_ROOT), frame.name, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_ROOT)
    ]
    message = (str(error) or repr(error)).partition("\n")[0]
    path, function, line = frames[-1] if frames else (Path("unknown"), "", 0)
    location = f"{path}:{line}"
    if path.is_relative_to(_SIMULATOR / "invariants"):
        return Verdict(Witness.INVARIANT, path.stem, message, location)
    if path.is_relative_to(_SIMULATOR / "workload") or path == _SIMULATOR / "oracle.py":
        return Verdict(Witness.CLIENT, path.stem, message, location)
    if path.is_relative_to(_SIMULATOR / "mutations") and any(name == "tell" for _, name, _ in frames):
        return Verdict(Witness.PROPERTY, function, message, location)
    if path.is_relative_to(_SIMULATOR) and any(
        name in ("_demand_progress", "demand_progress") for _, name, _ in frames
    ):
        return Verdict(Witness.HEALED, function.strip("_"), message, location)
    return Verdict(Witness.PRODUCT, f"{path}: {function}", message, location)


def causes(failure: BaseException) -> Iterator[BaseException]:
    """The failure, what caused it, and so on."""
    error: BaseException | None = failure
    while error is not None:
        yield error
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
