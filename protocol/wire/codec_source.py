"""Generation of the Python source of readers and writers from a message's field table.

Adjacent fields of fixed size, with the length of the field after them, become one `struct` call. A reader is `read(buf,
pos, end) -> (message, pos)`, a writer is `write(m, out)`. Lengths are checked against `end` and the limits of
`primitives` before anything of that length is made.

A bounded reader is `read(buf, pos, end, left)`, where `left[0]` is the number of array elements that may still be read.
The reader raises `TooManyElements` before it reads further.

A stepwise reader is a generator that returns the same as a reader. It yields the number of array elements that it reads
next, at most `STEP_ELEMENTS` at a time; an array of numbers is read in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any

from .primitives import (
    ARRAY_ELEMENTS_MAX,
    STRING_BYTES_MAX,
    MalformedMessage,
    long_uvarint,
    tagged_sections,
    too_long,
    write_uvarint,
)
from .schema import EncodedArray, Field, Message

FIXED = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}

STEP_ELEMENTS = 256

_FEW_MAX = 16
_FEW = {
    code: tuple(struct.Struct(f">{n}{code}").unpack_from for n in range(_FEW_MAX))
    for code in FIXED.values()
    if code != "16s"
}
"""Prepared `unpack_from` functions for short arrays of numbers. Most arrays are short, such as the replicas of a
partition, and preparing a function takes longer than reading such an array."""

Nested = Callable[[type[Message]], Callable[..., Any]]


class TooManyElements(Exception):
    """An encoded message whose arrays have more elements than a bounded reader may still read."""


def has_arrays(cls: type[Message], version: int) -> bool:
    """Return whether the message, or any struct in it, has an array in this version."""
    return any(
        field.kind == "array" or (field.struct is not None and has_arrays(field.struct, version))
        for field in cls.schema.fields
        if version in field.versions
    )


class _Source:
    """A generator of a function's Python source: the lines so far, and a run of fixed-size items that is not written
    out yet."""

    def __init__(self, cls: type[Message], version: int, flexible: bool, nested: Nested) -> None:
        self.cls, self.version, self.flexible, self.nested = cls, version, flexible, nested
        self.lines: list[str] = []
        self.depth = 1
        self.run: list[tuple[str, str]] = []
        self.scope: dict[str, Any] = {
            "cls": cls,
            "new": object.__new__,
            "pack": struct.pack,
            "Struct": struct.Struct,
            "long_uvarint": long_uvarint,
            "write_uvarint": write_uvarint,
            "tagged_sections": tagged_sections,
            "too_long": too_long,
            "MalformedMessage": MalformedMessage,
            "TooManyElements": TooManyElements,
        }

    def add(self, line: str) -> None:
        self.flush()
        self.lines.append("    " * self.depth + line)

    def fixed(self, expression: str, code: str) -> None:
        self.run.append((expression, code))

    def flush(self) -> None:
        raise NotImplementedError

    def bind(self, prefix: str, value: Any) -> str:
        """Make `value` available to the generated function, and return its name there, which begins with `prefix`."""
        for name, bound in self.scope.items():
            if name.startswith(prefix) and bound is value:
                return name
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name

    def where(self, field: Field) -> str:
        return repr(f"{self.cls.__name__}.{field.name}")

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def plain_fields(self) -> list[Field]:
        """Return the fields that are in the message's body in this version, except tagged ones, in wire order."""
        return [f for f in self.cls.schema.fields if self.version in f.versions and not self.is_tagged(f)]

    def is_tagged(self, field: Field) -> bool:
        return self.flexible and self.version in field.versions and self.version in field.tagged

    def tagged_fields(self) -> list[Field]:
        tagged = [f for f in self.cls.schema.fields if self.is_tagged(f)]
        return sorted(tagged, key=lambda f: f.tag or 0)

    def text(self, head: str, tail: list[str]) -> str:
        self.flush()
        return "\n".join([head, *self.lines, *tail, ""])


# ---------------------------------------------------------------- readers


class _Reader(_Source):
    head = "def read(buf, pos, end):"

    def read(self, struct_class: type[Message]) -> str:
        """Return the source of the call that reads a nested struct."""
        return f"{self.bind('read_', self.nested(struct_class))}(buf, pos, end)"

    def begin_array(self) -> None:
        """Add the code that runs before an array of `n` elements is read."""

    def begin_loop(self, depth: int) -> None:
        """Add the code that runs before a loop over an array's `n` elements."""

    def begin_element(self, depth: int) -> None:
        """Add code at the start of a loop's body; `at{depth}` is the number of the element."""

    def flush(self) -> None:
        if not self.run:
            return
        run, self.run = self.run, []
        codes = ">" + "".join(code for _, code in run)
        targets = ", ".join(target for target, _ in run)
        if codes == ">B":
            self.add(f"{targets} = buf[pos]")
        else:
            unpack = self.bind(f"unpack_{codes[1:].replace('?', 'o')}_", struct.Struct(codes).unpack_from)
            self.add(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(buf, pos)")
        self.add(f"pos += {struct.calcsize(codes)}")

    def field(self, field: Field, target: str, where: str) -> None:
        if (code := FIXED.get(field.kind)) is not None:
            self.fixed(target, code)
        elif field.kind == "struct":
            self.struct(field, target)
        else:
            self.sized(field, target, where)

    def struct(self, field: Field, target: str) -> None:
        assert field.struct is not None
        read = self.read(field.struct)
        if not self.nullable(field):
            self.add(f"{target}, pos = {read}")
            return
        self.fixed("present", "b")
        self.add(f"if present < 0: {target} = None")
        self.add(f"else: {target}, pos = {read}")

    def sized(self, field: Field, target: str, where: str) -> None:
        """Add the code that reads a string, bytes, records or an array into `target`: its length first."""
        if self.flexible:
            self.fixed("n", "B")
            self.add("if n > 127: n, pos = long_uvarint(buf, pos, n)")
            self.add("n -= 1")
        else:
            self.fixed("n", "h" if field.kind == "string" else "i")
        if self.nullable(field):
            self.add(f"if n < 0: {target} = None")
        else:
            self.add(f"if n < 0: raise MalformedMessage({where} + ' may not be null')")
        self.add("else:")
        self.depth += 1
        if field.kind == "array":
            self.array(field, target, where)
        else:
            limit = f" or n > {STRING_BYTES_MAX}" if field.kind == "string" else ""
            self.add("stop = pos + n")
            self.add(f"if stop > end{limit}: raise too_long({where}, n, end - pos)")
            value = {"string": "str(buf[pos:stop], 'utf-8')", "bytes": "bytes(buf[pos:stop])"}
            self.add(f"{target} = {value.get(field.kind, 'buf[pos:stop]')}")
            self.add("pos = stop")
        self.depth -= 1

    def array(self, field: Field, target: str, where: str) -> None:
        element = field.element
        assert element is not None
        code = FIXED.get(element.kind)
        size = struct.calcsize(f">{code}") if code else 1
        bytes_needed = "n" if size == 1 else f"n * {size}"
        self.add(
            f"if {bytes_needed} > end - pos or n > {ARRAY_ELEMENTS_MAX}:"
            f" raise too_long({where}, n, end - pos)"
        )
        if code is not None and code != "16s":
            self.begin_array()
            few = self.bind(f"few_{code}_".replace("?", "o"), _FEW[code])
            self.add(f"numbers = {few}[n] if n < {_FEW_MAX} else Struct(f'>{{n}}{code}').unpack_from")
            self.add(f"{target} = list(numbers(buf, pos))")
            self.add(f"pos += {bytes_needed}")
            return
        depth = self.depth
        items, item = f"items{depth}", f"item{depth}"
        self.add(f"{target} = {items} = []")
        self.begin_loop(depth)
        self.add(f"for at{depth} in range(n):")
        self.depth += 1
        self.begin_element(depth)
        self.field(element, item, where)
        self.add(f"{items}.append({item})")
        self.depth -= 1

    def default(self, field: Field) -> None:
        """Add the code that sets a field to its default, which is not in this version, or is tagged and so may be
        missing."""
        if not isinstance(field.default, tuple):
            self.add(f"m.{field.name} = {self.bind('default_', field.default)}")
        elif field.struct is not None:
            self.add(f"m.{field.name} = {self.bind('new_', field.struct)}()")
        else:
            self.add(f"m.{field.name} = []")

    def tags(self) -> None:
        tagged = self.tagged_fields()
        for field in tagged:
            self.default(field)
        if not self.flexible:
            return
        self.fixed("tags", "B")
        self.add("if tags:")
        self.depth += 1
        self.add("sections, after = tagged_sections(buf, pos, end, tags)")
        if tagged:
            self.add("for tag, pos, end in sections:")
            self.depth += 1
            for number, field in enumerate(tagged):
                self.add(f"{'elif' if number else 'if'} tag == {field.tag}:")
                self.depth += 1
                self.field(field, f"m.{field.name}", self.where(field))
                self.flush()
                self.depth -= 1
            self.add("else: continue")
            wrong = repr(f"{self.cls.__name__}: a tagged field is not as long as it says")
            self.add(f"if pos != end: raise MalformedMessage({wrong})")
            self.depth -= 1
        self.add("pos = after")
        self.depth -= 1


class _BoundedReader(_Reader):
    head = "def read(buf, pos, end, left):"

    def read(self, struct_class: type[Message]) -> str:
        if not has_arrays(struct_class, self.version):
            return super().read(struct_class)
        return f"{self.bind('read_', self.nested(struct_class))}(buf, pos, end, left)"

    def begin_array(self) -> None:
        self.add("left[0] -= n")
        self.add("if left[0] < 0: raise TooManyElements")

    def begin_loop(self, depth: int) -> None:
        self.begin_array()


class _StepwiseReader(_Reader):
    def read(self, struct_class: type[Message]) -> str:
        call = super().read(struct_class)
        return f"yield from {call}" if has_arrays(struct_class, self.version) else call

    def begin_array(self) -> None:
        self.add("yield n")

    def begin_loop(self, depth: int) -> None:
        self.add(f"length{depth} = n")

    def begin_element(self, depth: int) -> None:
        self.add(f"if not at{depth} % {STEP_ELEMENTS}: yield min({STEP_ELEMENTS}, length{depth} - at{depth})")


class ReaderKind(Enum):
    """Kinds of readers."""

    AT_ONCE = _Reader
    BOUNDED = _BoundedReader
    STEPWISE = _StepwiseReader


def reader_source(
    kind: ReaderKind, cls: type[Message], version: int, flexible: bool, nested: Nested
) -> tuple[str, dict[str, Any]]:
    """Return the source of `read` and the names that it uses.

    `nested` returns the readers of nested structs: of the same kind for structs with arrays, otherwise of kind AT_ONCE.
    """
    source: _Reader = kind.value(cls, version, flexible, nested)
    source.add("m = new(cls)")
    for field in cls.schema.fields:
        if version not in field.versions:
            source.default(field)
    for field in source.plain_fields():
        source.field(field, f"m.{field.name}", source.where(field))
    source.tags()
    return source.text(source.head, ["    return m, pos"]), source.scope


# ---------------------------------------------------------------- writers


class _Writer(_Source):
    def flush(self) -> None:
        if not self.run:
            return
        run, self.run = self.run, []
        codes = ">" + "".join(code for _, code in run)
        values = ", ".join(value for value, code in run if code != "x")
        if not values:
            constant = self.bind("zero_", bytes(len(run)))
            self.add(f"out += {constant}")
            return
        pack = self.bind(f"pack_{codes[1:].replace('?', 'o')}_", struct.Struct(codes).pack)
        self.add(f"out += {pack}({values})")

    def field(self, field: Field, value: str, where: str) -> None:
        if field.kind == "uuid":
            self.lines.append(
                "    " * self.depth
                + f"if len({value}) != 16: raise UnsupportedField({where} + ' needs 16 bytes')"
            )
        if (code := FIXED.get(field.kind)) is not None:
            self.fixed(value, code)
        elif field.kind == "struct":
            self.struct(field, value, where)
        else:
            self.sized(field, value, where)

    def struct(self, field: Field, value: str, where: str) -> None:
        assert field.struct is not None
        write = self.bind("write_", self.nested(field.struct))
        if not self.nullable(field):
            self.add(f"if {value} is None: raise UnsupportedField({where} + ' may not be null')")
            self.add(f"{write}({value}, out)")
            return
        self.add(f"if {value} is None: out.append(255)")
        self.add("else:")
        self.add(f"    out.append(1); {write}({value}, out)")

    def sized(self, field: Field, value: str, where: str) -> None:
        if field.kind == "array":
            v, n = f"v{self.depth}", f"n{self.depth}"
        else:
            v, n = "v", "n"
        self.lines.append("    " * self.depth + f"{v} = {value}")
        if self.nullable(field):
            self.add(f"if {v} is None:")
            self.depth += 1
            if self.flexible:
                self.add("out.append(0)")
            else:
                self.add(
                    f"out += {self.bind('null_', struct.pack('>h' if field.kind == 'string' else '>i', -1))}"
                )
            self.depth -= 1
            self.add("else:")
            self.depth += 1
            self.content(field, v, n, where)
            self.flush()
            self.depth -= 1
        else:
            self.lines.append(
                "    " * self.depth + f"if {v} is None: raise UnsupportedField({where} + ' may not be null')"
            )
            self.content(field, v, n, where)

    def content(self, field: Field, v: str, n: str, where: str) -> None:
        """Add the code that writes a value that is not null: its length, then its content."""
        indent = "    " * self.depth
        if field.kind == "string":
            self.lines.append(f"{indent}{v} = {v}.encode()")
        if field.kind == "records":
            self.lines.append(f"{indent}held = isinstance({v}, (bytes, memoryview, bytearray))")
            self.lines.append(f"{indent}{n} = len({v}) if held else {v}.size")
        else:
            self.lines.append(f"{indent}{n} = len({v})")
        if field.kind == "string":
            self.lines.append(
                f"{indent}if {n} > {STRING_BYTES_MAX}: raise UnsupportedField({where} + ' is too long')"
            )
        self.length(field, n)
        if field.kind == "array":
            self.array(field, v, n, where)
        elif field.kind == "records":
            self.add(f"if held: out += {v}")
            self.add(f"else: out.hole({v})")
        else:
            self.add(f"out += {v}")

    def length(self, field: Field, n: str) -> None:
        if not self.flexible:
            self.fixed(n, "h" if field.kind == "string" else "i")
            return
        self.add(f"if {n} < 127: out.append({n} + 1)")
        self.add(f"else: write_uvarint(out, {n} + 1)")

    def array(self, field: Field, v: str, n: str, where: str) -> None:
        element = field.element
        assert element is not None
        code = FIXED.get(element.kind)
        if code is not None and code != "16s":
            self.add(f"out += pack(f'>{{{n}}}{code}', *{v})")
            return
        self.flush()
        depth = self.depth
        if field.encodable:
            self.scope["EncodedArray"] = EncodedArray
            self.add(f"if {v}.__class__ is EncodedArray: out += b''.join({v}.elements)")
            self.add("else:")
            self.depth += 1
        item = f"item{self.depth}"
        self.add(f"for {item} in {v}:")
        self.depth += 1
        self.field(element, item, where)
        self.flush()
        self.depth = depth

    def is_set(self, field: Field, value: str) -> str:
        """Return the source of an expression that is true if the field's `value` is not its default."""
        default = field.default
        if default is None:
            return f"{value} is not None"
        if isinstance(default, tuple) and field.struct is not None:
            # Compared field by field, since an equality test of messages takes longer than the rest of a small message.
            inner = [self.is_set(f, f"{value}.{f.name}") for f in field.struct.schema.fields]
            return f"({' or '.join([f'{value} is None', *inner])})"
        if isinstance(default, tuple) or field.kind in ("bytes", "records"):
            return f"({value} is None or len({value}) > 0)"
        return f"{value} != {self.bind('default_', default)}"

    def refuse_missing(self) -> None:
        for field in self.cls.schema.fields:
            if self.version in field.versions or field.ignorable:
                continue
            reason = repr(f"{self.cls.__name__}.{field.name} is not in version {self.version}")
            self.add(f"if {self.is_set(field, f'm.{field.name}')}: raise UnsupportedField({reason})")

    def tags(self) -> None:
        if not self.flexible:
            return
        tagged = self.tagged_fields()
        if not tagged:
            self.fixed("", "x")
            return
        conditions = [f"set_{f.tag}" for f in tagged]
        for field, condition in zip(tagged, conditions, strict=True):
            self.add(f"{condition} = {self.is_set(field, f'm.{field.name}')}")
        self.add(f"tags = {' + '.join(conditions)}")
        self.add("out.append(tags)")
        self.add("if tags:")
        self.depth += 1
        self.add("body = out")
        for field, condition in zip(tagged, conditions, strict=True):
            self.add(f"if {condition}:")
            self.depth += 1
            self.add("out = bytearray()")
            self.field(field, f"m.{field.name}", self.where(field))
            self.add(f"write_uvarint(body, {field.tag})")
            self.add("write_uvarint(body, len(out))")
            self.add("body += out")
            self.depth -= 1
        self.depth -= 1


def writer_source(
    cls: type[Message], version: int, flexible: bool, nested: Nested
) -> tuple[str, dict[str, Any]]:
    """Return the source of `write` and the names that it uses; `nested` returns the writers of nested structs."""
    source = _Writer(cls, version, flexible, nested)
    source.refuse_missing()
    for field in source.plain_fields():
        source.field(field, f"m.{field.name}", source.where(field))
    source.tags()
    return source.text("def write(m, out):", ["    return None"]), source.scope
