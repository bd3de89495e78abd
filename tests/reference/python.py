"""Pages of classes and functions for Python: signatures and docstrings as Markdown."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.reference.markdown import code, docstring, fenced, first_sentence, plain, table

WIDTH = 100


def own_text(kind: type) -> str:
    """Return the docstring in the source of a class, without the list of options that help adds."""
    return inspect.cleandoc(ast.get_docstring(class_node(kind)) or "")


def class_node(kind: type) -> ast.ClassDef:
    """Return the syntax tree of a class."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return node


def attribute_texts(kind: type) -> dict[str, str]:
    """Return the docstrings that stand below attributes in the source of a class."""
    body = class_node(kind).body
    return {
        node.target.id: " ".join(inspect.cleandoc(after.value.value).split())
        for node, after in pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(after.value.value, str)
    }


def calls(kind: type) -> dict[str, Any]:
    """Return the public methods and properties of a class, those of the most basic class first."""
    bases = [
        base
        for base in kind.__mro__[:-1]
        if base.__module__.startswith("ottla.") and any(not name.startswith("_") for name in vars(base))
    ]
    ordered = [bases[-1], *bases[1:-1], bases[0]] if len(bases) > 1 else bases
    names = dict.fromkeys(name for base in ordered for name in vars(base) if not name.startswith("_"))
    found = {name: inspect.getattr_static(kind, name) for name in names}
    kinds = (property, classmethod, staticmethod, cached_property)
    return {
        name: value for name, value in found.items() if inspect.isfunction(value) or isinstance(value, kinds)
    }


def signature_text(name: str, call: Any) -> str:
    """Return a signature as the source has it, with a line for each parameter if it is long."""
    function = call.__func__ if isinstance(call, classmethod | staticmethod) else call
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    returned = signature.return_annotation
    end = "" if returned in (inspect.Signature.empty, "None") else f" -> {_annotation(returned)}"
    start = "async def" if inspect.iscoroutinefunction(inspect.unwrap(function)) else "def"
    words = list(_parameters(parameters))
    line = f"{start} {name}({', '.join(words)}){end}"
    if len(line) <= WIDTH:
        return line
    lines = "".join(f"    {word},\n" for word in words)
    return f"{start} {name}(\n{lines}){end}"


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for each in parameters:
        starred = starred or each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
            starred = True
        prefix = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        typed = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        default = "" if each.default is each.empty else f" = {value_of(each.default)}"
        yield f"{prefix}{each.name}{typed}{default}"


def value_of(default: object) -> str:
    """Return a default as a program writes it; a function without a name is a row of dots."""
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    if inspect.isfunction(default):
        return default.__name__ if default.__name__.isidentifier() else "..."
    return repr(default).replace("'", '"')


def _annotation(given: Any) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)


def class_text(kind: type, *, level: int = 2) -> Iterator[str]:
    """Yield the text of a class, a table of its calls, and each call with its signature."""
    yield docstring(own_text(kind))
    found = calls(kind)
    yield table(
        ("call", "what it does"),
        (
            (f"[`{name}`](#{name})", first_sentence(inspect.getdoc(call) or ""))
            for name, call in found.items()
        ),
    )
    for name, call in found.items():
        yield f"{'#' * level} {name}\n"
        yield from call_text(name, call)


def call_text(name: str, call: Any) -> Iterator[str]:
    """Yield the signature and the docstring of a method, property or function."""
    if isinstance(call, property | cached_property):
        getter = call.fget if isinstance(call, property) else call.func
        returned = _annotation(inspect.signature(getter).return_annotation)  # type: ignore[arg-type]
        yield fenced(f"{name}: {returned}", "python")
    else:
        yield fenced(signature_text(name, call), "python")
    yield docstring(inspect.getdoc(call) or "")


def value_text(kind: type) -> Iterator[str]:
    """Yield the text of a value type: its docstring, and a table of its fields or members."""
    yield docstring(own_text(kind))
    if issubclass(kind, Enum):
        yield table(("name", "value"), ((code(each.name), code(str(each.value))) for each in kind))
    elif rows := list(_field_rows(kind)):
        columns = ("field", "type", "default", "meaning")
        shown = [index for index in range(4) if index < 2 or any(row[index] for row in rows)]
        yield table((columns[index] for index in shown), ([row[index] for index in shown] for row in rows))


def _field_rows(kind: type) -> Iterator[tuple[str, str, str, str]]:
    texts = attribute_texts(kind)
    if dataclasses.is_dataclass(kind):
        for each in dataclasses.fields(kind):
            if not each.name.startswith("_"):
                yield (
                    code(each.name),
                    code(str(each.type)),
                    code(_default(each)),
                    plain(texts.get(each.name, "")),
                )
        return
    defaults, annotations = getattr(kind, "_field_defaults", {}), _annotations(kind)
    fields = getattr(kind, "_fields", ())
    for name in (
        fields if annotations.keys() >= set(fields) else annotations
    ):  # A subclass has fields of its own.
        default = value_of(defaults[name]) if name in defaults else ""
        yield code(name), code(ast.unparse(annotations[name])), code(default), plain(texts.get(name, ""))


def _annotations(kind: type) -> dict[str, ast.expr]:
    return {
        node.target.id: node.annotation
        for node in class_node(kind).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return value_of(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.default_factory.__name__}()"
    return ""
