"""Error answers, derived from the schemas of a request and its response.

A response has the error at the top, if its version has an error code there. Else each array of structs with an error
code has an element for each element of the request's array of the same name:

    DeleteRecordsRequest(topics=[topic(name="a", partitions=[partition(partition_index=3, offset=7)])])
    DeleteRecordsResponse(topics=[topic(name="a", partitions=[partition(partition_index=3, error_code=41)])])

An element repeats the fields that identify it, and has the error code and the error message where its version has such
fields. All other fields have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.wire.schema import Field, Message, Request

_CODES = frozenset({"error_code", "partition_error_code"})
_MESSAGE = "error_message"
_IDENTIFYING = frozenset(
    {
        "name",
        "topic",
        "topic_id",
        "partition",
        "partition_index",
        "group_id",
        "producer_id",
        "resource_name",
        "resource_type",
        "transactional_id",
    }
)


@dataclass(frozen=True, slots=True)
class ErrorAnswers:
    """The error answers of one API, with the differences from the general rule.

    `arrays` has the name of the response's array for a request's array, where they are not the same, and `identifying`
    the name of the response's field for an identifying field of the request. `values` has the values of fields that are
    not the schema's defaults in an error answer. If `in_elements_too`, elements have the error although it is at the
    top. Errors of the codes `in_elements_only` are never at the top.
    """

    arrays: Mapping[str, str] = field(default_factory=dict)
    identifying: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    in_elements_too: bool = False
    in_elements_only: frozenset[ErrorCode] = frozenset()

    def answer(self, request: Request[Any], error: KafkaError, version: int) -> Message | None:
        """Return the response, in this version, that carries an error; None if the response has no place for it."""
        response = request.response
        if not _has_code(response):
            return None
        values = self._values(response, error, version)
        if error.code in self.in_elements_only:
            values = {name: value for name, value in values.items() if name not in _CODES}
        answer = response(**values)
        if self.in_elements_too or not _CODES & values.keys():
            for array in self._arrays(type(request), response, error, version):
                array.fill(request, answer)
        return answer

    def _values(self, answer: type[Message], error: KafkaError, version: int) -> dict[str, object]:
        """Return the values of the fields that do not depend on the request: error code, error message, and this API's
        own values, as far as the struct `answer` has such fields.
        """
        values = {**dict.fromkeys(_CODES, error.code), _MESSAGE: error.message, **self.values}
        return {name: values[name] for name in _fields(answer, version) if name in values}

    def _arrays(
        self, request: type[Message], answer: type[Message], error: KafkaError, version: int
    ) -> list[_Array]:
        """Return the arrays of the response `answer` that need an element for each element of an array of the
        request.
        """
        present = _fields(answer, version)
        found = []
        for name, row in _fields(request, version).items():
            target = present.get(self.arrays.get(name, name))
            struct = None if target is None else _struct(target)
            if target is None or struct is None or row.element is None or not _has_code(struct):
                continue
            values, named = self._values(struct, error, version), row.element.struct
            found.append(
                _Array(
                    source=name,
                    target=target.name,
                    struct=struct,
                    values=values,
                    identifier=_identifier(struct, row.element.kind) if named is None else "",
                    identifying=self._shared(named, struct) if named is not None else (),
                    arrays=self._arrays(named, struct, error, version)
                    if named is not None and not _CODES & values.keys()
                    else (),
                )
            )
        return found

    def _shared(self, request: type[Message], answer: type[Message]) -> tuple[tuple[str, str], ...]:
        """Return the identifying fields that an element of the request and of the response both have, as (name in the
        request, name in the response).
        """
        kinds = {row.name: row.kind for row in answer.schema.fields if row.name in _IDENTIFYING}
        named = ((row, self.identifying.get(row.name, row.name)) for row in request.schema.fields)
        return tuple((row.name, name) for row, name in named if kinds.get(name) == row.kind)


class _Array(NamedTuple):
    """An array of an error answer, and the array of the request for whose elements it has elements.

    Elements of the request are structs, whose `identifying` fields are repeated, or values of the field `identifier`.
    """

    source: str
    target: str
    struct: type[Message]
    values: dict[str, object]
    identifier: str
    identifying: tuple[tuple[str, str], ...]
    arrays: Sequence[_Array]

    def fill(self, request: Any, answer: Message) -> None:
        """Append an element with the error to this array of `answer` for each element of the request's array, and fill
        nested arrays likewise.
        """
        elements = getattr(answer, self.target)
        for named in getattr(request, self.source) or ():
            if self.identifier:
                element = self.struct(**self.values, **{self.identifier: named})
            else:
                identity = {name: getattr(named, source) for source, name in self.identifying}
                element = self.struct(**self.values, **identity)
            for array in self.arrays:
                array.fill(named, element)
            elements.append(element)


def _fields(cls: type[Message], version: int) -> dict[str, Field]:
    return {row.name: row for row in cls.schema.fields if version in row.versions}


def _identifier(answer: type[Message], kind: str) -> str:
    """Return the name of the field in which an answer's element repeats an element of the request that is a plain value
    of this kind, such as a partition's index. It is the first field of the kind apart from error fields.
    """
    rows = (row for row in answer.schema.fields if row.kind == kind)
    return next(row.name for row in rows if row.name not in _CODES and row.name != _MESSAGE)


def _has_code(cls: type[Message]) -> bool:
    """Return whether a struct of a response, or a struct nested in it, has a field for an error code."""
    structs = (_struct(row) for row in cls.schema.fields)
    return any(row.name in _CODES for row in cls.schema.fields) or any(
        struct is not None and _has_code(struct) for struct in structs
    )


def _struct(row: Field) -> type[Message] | None:
    """Return the type of an array's elements; None for arrays of primitives, and for other fields."""
    return None if row.element is None else row.element.struct
