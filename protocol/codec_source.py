"""The Python source of readers and writers, derived from a message's field table.

Fields of fixed size that stand side by side, with the length that follows them, become one `struct` call. A
reader is `read(buf, pos, end) -> (message, pos)`, a writer `write(m, out)`. Lengths are checked against `end`
and the limits of `primitives` before anything of that length is made.

A bounded reader is `read(buf, pos, end, left)`, where `left[0]` is how many elements of arrays may still be read. It
raises `TooManyElements` before it reads more.

A stepwise reader is a generator that returns the same. It yields how many elements of an array it reads next, at most
`STEP_ELEMENTS` at a time, unless these are numbers.
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
"""Most arrays of numbers are short, such as the replicas of a partition: to look up how to read one takes longer than
to read it."""

Nested = Callable[[type[Message]], Callable[..., Any]]


class TooManyElements(Exception):
    """A bounded reader has come to an array that goes beyond its bound."""


def has_arrays(cls: type[Message], version: int) -> bool:
    """Whether such a message holds any array in this version, also in its structs."""
    return any(
        field.kind == "array" or (field.struct is not None and has_arrays(field.struct, version))
        for field in cls.schema.fields
        if version in field.versions
    )


class _Source:
    """Lines of a function under construction, and the run of fixed-size items not yet written out."""

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
        """A name for `value` in the function's scope."""
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
        """Fields in the body of this version, in wire order."""
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
        """The call that reads a nested struct."""
        return f"{self.bind('read_', self.nested(struct_class))}(buf, pos, end)"

    def begin_array(self) -> None:
        """`n` elements come, of which nothing is read yet."""

    def begin_loop(self, depth: int) -> None:
        """A loop over `n` elements follows."""

    def begin_element(self, depth: int) -> None:
        """In the loop over these elements, whose number is `at{depth}`."""

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
        """A string, bytes, records or array: its length first."""
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
        """A field that is not in this version, or may be missing as it is tagged."""
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
    """The kinds of readers."""

    AT_ONCE = _Reader
    BOUNDED = _BoundedReader
    STEPWISE = _StepwiseReader


def reader_source(
    kind: ReaderKind, cls: type[Message], version: int, flexible: bool, nested: Nested
) -> tuple[str, dict[str, Any]]:
    """Source of `read` and the names it uses; `nested` gives the readers of nested structs: of the same kind if they
    have arrays, else those that read at once.
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
        """A value that is not null: its length, then itself."""
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
        """An expression: the value of the field is not its default."""
        default = field.default
        if default is None:
            return f"{value} is not None"
        if isinstance(default, tuple) and field.struct is not None:
            # Spelled out, since an equality between messages costs more than the rest of a small message.
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
    """Source of `write` and the names it uses; `nested` gives the writers of nested structs."""
    source = _Writer(cls, version, flexible, nested)
    source.refuse_missing()
    for field in source.plain_fields():
        source.field(field, f"m.{field.name}", source.where(field))
    source.tags()
    return source.text("def write(m, out):", ["    return None"]), source.scope
