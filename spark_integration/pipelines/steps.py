"""The steps of a pipeline: a function that turns a frame of records into a frame of results.

    def by_hour(records: DataFrame, *, window: str = "1 hour") -> DataFrame: ...

Its keyword-only parameters are the keys below `steps` in the pipeline's file. Their types are str, int, bool or
Literal; a parameter without a default is required.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from ...protocol.nearest import nearest
from ..options import WrongOption, boolean, whole_number
from .settings import WrongPipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Steps = Callable[..., DataFrame]

OURS = {"flight_delays": "flight_delays"}
"""Built-in steps: the name, and the module of this package that has a function of the same name."""


def find_steps(name: str, folder: Path) -> Steps:
    """Return the function that `steps.use` names: a built-in one, or FILE.py:FUNCTION. Raises WrongPipeline."""
    if name in OURS:
        found: Steps = getattr(importlib.import_module(f".{OURS[name]}", __package__), name)
        return found
    file, colon, function = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        meant = nearest(name, OURS)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(OURS)}"
        raise WrongPipeline(f"steps.use has no {name!r}; {hint}, or FILE.py:FUNCTION of your own")
    module = _load(folder / file)
    steps = getattr(module, function, None)
    if not callable(steps):
        functions = [attribute for attribute, value in vars(module).items() if inspect.isfunction(value)]
        raise WrongPipeline(
            f"steps.use: {file} has no function {function!r}; it has {', '.join(functions) or 'none'}"
        )
    own: Steps = steps
    return own


def steps_file(name: str, folder: Path) -> Path | None:
    """Return the file of a user's steps, which executors need, too; None for built-in steps."""
    return None if name in OURS else folder / name.rpartition(":")[0]


def parameters_of(steps: Steps, given: Mapping[str, str]) -> dict[str, Any]:
    """Convert the file's values to the keyword arguments of `steps`. Raises WrongPipeline."""
    known = {
        parameter.name: parameter
        for parameter in inspect.signature(steps).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant!r}?" if meant else f"there are use, {', '.join(known)}"
            raise WrongPipeline(f"there is no key 'steps.{name}'; {hint}")
    missing = [
        name
        for name, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and name not in given
    ]
    if missing:
        raise WrongPipeline(f"steps.{missing[0]} is missing")
    kinds = {name: _kind(steps, name, known[name].annotation) for name in given}
    return {name: _converted(f"steps.{name}", value, kinds[name]) for name, value in given.items()}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        raise WrongPipeline(f"steps.use: cannot read {path}: {error.strerror}") from None
    except Exception as error:
        raise WrongPipeline(f"steps.use: {path} fails when it is imported: {error!r}") from error
    return module


def _kind(steps: Steps, name: str, annotation: Any) -> Any:
    """Return the type of a parameter. An annotation is text if its evaluation is postponed (PEP 563)."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, inspect.unwrap(steps).__globals__)
        except NameError as error:
            raise WrongPipeline(f"steps.{name}: its type {annotation!r} is not known: {error}") from None
    if annotation in (str, int, bool, inspect.Parameter.empty) or get_origin(annotation) is Literal:
        return annotation
    raise WrongPipeline(f"steps.{name}: a parameter is a str, int, bool or Literal, not {annotation}")


def _converted(key: str, value: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            raise WrongPipeline(f"{key} is one of {', '.join(choices)}, not {value!r}")
        return value
    try:
        if kind is bool:
            return boolean(key, value)
        return whole_number(key, value) if kind is int else value
    except WrongOption as error:
        raise WrongPipeline(str(error)) from None
