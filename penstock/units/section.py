"""A section of settings: typed, bounded, frozen, and known outside by flat names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from penstock.errors import BadSettings
from penstock.units.texts import LONGEST_SHOWN, cut_text


class BadValue(BadSettings):
    """A value that a section refuses; `names` are the settings concerned, as they are written outside.

    `problem` says what is wrong without the name, so that a reader of files can put the place before it.
    """

    def __init__(self, problem: str, names: tuple[str, ...], *, crossed: bool = False) -> None:
        super().__init__(problem if crossed else f"{', '.join(names)}: {problem}")
        self.problem, self.names = problem, names


class Section(BaseModel):
    """Settings that belong together; they live beside what they set.

    A field with a description is a setting. Its name outside is `prefix` and the field's name, unless `names`
    gives another. A field without a description is a parameter that tests and experiments change.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    prefix: ClassVar[str] = ""
    names: ClassVar[Mapping[str, str]] = {}
    below: ClassVar[tuple[str, str] | None] = None
    """Two fields of which the first must be below the second."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _bad_value(type(self), error, values) from None

    @classmethod
    def outer_name(cls, field: str) -> str:
        """Return the name of a field in files, in the environment and in Spark's configuration."""
        return cls.names.get(field, cls.prefix + field)

    @classmethod
    @cache
    def settings(cls) -> Mapping[str, tuple[str, FieldInfo]]:
        """Map the outer name of each setting to its field."""
        fields = cls.model_fields.items()
        return {cls.outer_name(name): (name, field) for name, field in fields if field.description}

    def change(self, **values: Any) -> Self:
        """Return a copy with other values, checked like the first ones."""
        return type(self)(**{**dict(self), **values})

    @model_validator(mode="after")
    def _check_below(self) -> Self:
        if self.below is not None:
            (lower, low), (upper, high) = ((self.outer_name(one), getattr(self, one)) for one in self.below)
            if not low < high:
                raise ValueError(f"{lower} ({low}) is not below {upper} ({high})")
        return self


SectionType = TypeVar("SectionType", bound=Section)


class Sections(Protocol):
    """All settings in effect, section by section."""

    def section(self, kind: type[SectionType], /) -> SectionType:
        """Return the section of this kind."""


def extra_of(field: FieldInfo, key: str) -> Any:
    """Return what a field says of itself beside its type, such as its default in words; None if nothing."""
    extra = field.json_schema_extra
    return extra.get(key) if isinstance(extra, dict) else None


def _bad_value(kind: type[Section], error: ValidationError, values: Mapping[str, Any]) -> BadValue:
    first = error.errors()[0]
    message = cut_text(first["msg"].removeprefix("Value error, "), LONGEST_SHOWN)
    if not first["loc"]:
        words = message.replace("(", " ").split()
        return BadValue(message, tuple(name for name in kind.settings() if name in words), crossed=True)
    name = str(first["loc"][0])
    field, problem = kind.model_fields.get(name), f"{message[:1].lower()}{message[1:]}"
    if field is None or not extra_of(field, "secret"):
        problem = f"{problem}, got {cut_text(repr(values.get(name, first['input'])), LONGEST_SHOWN)}"
    return BadValue(problem, (kind.outer_name(name) if field is not None else name,))
