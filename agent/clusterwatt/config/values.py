"""One value: from the text of a YAML scalar to the type of a setting, or to words on what was expected.

What counts is the text as it was written. `"1.4"` in quotes is a number where a number is expected, as it
is when it comes from an environment variable; `1,4`, `.nan`, `.inf`, `yes` and `1:30` are not.
"""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping

import yaml
from msgspec import inspect

from clusterwatt.config.document import KNOWN_TAGS, TAG
from clusterwatt.config.model import http_address, listen_address
from clusterwatt.config.problems import escaped, shown

NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
DURATION_PART = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)"
SECONDS_OF = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0}
# Of bcrypt: a check takes some 60 ms at cost 10 and twice as long with each step more.
LOWEST_COST, HIGHEST_COST = 4, 16
SECRET_FORMS = frozenset({"inline PEM", "bcrypt hash"})
TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

Value = str | int | float | bool


class UnfitError(Exception):
    """A value that its setting cannot take; the text says what was expected and what was found."""


def convert(node: yaml.Node, kind: inspect.Type) -> Value:
    """The value of a scalar setting. Raises UnfitError."""
    if not isinstance(node, yaml.ScalarNode) or node.tag not in KNOWN_TAGS or is_null(node):
        raise UnfitError(mismatch(kind, node))
    reason = ""
    try:
        value = _parsed(node.value, kind)
    except ValueError as error:
        value, reason = None, str(error)
    if value is None:
        raise UnfitError(mismatch(kind, node) + (f": {reason}" if reason and not is_secret(kind) else ""))
    return value


def is_null(node: yaml.Node) -> bool:
    """Whether nothing stands there: an empty value, `~` or `null`."""
    return bool(node.tag == TAG + "null")


def is_text(kind: inspect.Type) -> bool:
    """Whether the setting takes its value as it is written."""
    return isinstance(_bare(kind), inspect.StrType | inspect.LiteralType)


def described(kind: inspect.Type) -> str:
    """What a setting of this type takes, in words."""
    form = _form(kind)
    if form:
        return FORMS[form][0]
    bare = _bare(kind)
    match bare:
        case inspect.BoolType():
            words = "true or false"
        case inspect.IntType():
            words = "a whole number" + _range(bare)
        case inspect.FloatType():
            words = "a number" + _range(bare)
        case inspect.LiteralType():
            *others, last = (str(value) or '""' for value in bare.values)
            words = f"{', '.join(others)} or {last}"
        case inspect.StrType():
            words = "text that is not empty" if bare.min_length else "text"
        case inspect.VarTupleType():
            words = f"a list, each entry {described(bare.item_type)}"
        case inspect.DictType():
            words = f"names, each with {described(bare.value_type)}"
        case inspect.StructType():
            words = "a section of settings"
        case _:
            raise NotImplementedError(f"no setting of type {kind} is foreseen")
    return words


def is_secret(kind: inspect.Type) -> bool:
    """Whether what stands there must not be told."""
    return _form(kind.value_type if isinstance(kind, inspect.DictType) else kind) in SECRET_FORMS


def mismatch(kind: inspect.Type, node: yaml.Node) -> str:
    """What a setting of this type takes, and what stands there instead unless that is secret."""
    if is_secret(kind):
        return f"expected {described(kind)}"
    return f"expected {described(kind)}, got {found(node)}"


def found(node: yaml.Node) -> str:
    """What stands there instead, in words."""
    if node.tag not in KNOWN_TAGS:
        return f"the tag {escaped(node.tag.replace(TAG, '!!'))}"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if is_null(node):
        return "nothing"
    text = str(node.value)
    plain = isinstance(node, yaml.ScalarNode) and not node.style and len(text) < 30
    return text if plain and NUMBER.fullmatch(text) else f'"{shown(text)}"'


def _parsed(text: str, kind: inspect.Type) -> Value | None:
    """The value, None when the text is not one; a ValueError adds the reason."""
    form = _form(kind)
    bare = _bare(kind)
    match bare:
        case inspect.BoolType():
            return TRUTH.get(text.lower())
        case inspect.IntType():
            return _in_range(int(text), bare) if INTEGER.fullmatch(text) else None
        case inspect.FloatType():
            return _in_range(float(text), bare) if NUMBER.fullmatch(text) else None
        case inspect.LiteralType():
            return text.lower() if text.lower() in bare.values else None
        case inspect.StrType():
            if any(unicodedata.category(character) in {"Cc", "Cs"} for character in text):
                raise ValueError("it holds control characters or is not UTF-8")
            if form:
                FORMS[form][1](text)
            return text if len(text) >= (bare.min_length or 0) else None
    raise NotImplementedError(f"no setting of type {kind} is foreseen")


def _in_range(number: float, kind: inspect.IntType | inspect.FloatType) -> float | None:
    fits = (
        math.isfinite(number)
        and (kind.gt is None or number > kind.gt)
        and (kind.ge is None or number >= kind.ge)
        and (kind.lt is None or number < kind.lt)
        and (kind.le is None or number <= kind.le)
    )
    return number if fits else None


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    limits = ((">", kind.gt), (">=", kind.ge), ("<", kind.lt), ("<=", kind.le))
    return " and".join(f" {sign} {limit}" for sign, limit in limits if limit is not None)


def _bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _form(kind: inspect.Type) -> str:
    return str((kind.extra or {}).get("form", "")) if isinstance(kind, inspect.Metadata) else ""


def _check_pattern(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a later Python will read otherwise is right today
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None


def _check_port(text: str) -> None:
    if not re.fullmatch(r"[^/\s]+/[0-9]+", text):
        raise ValueError("it is device and port number, with a slash between them")


def _check_header_name(text: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9-]*", text):
        raise ValueError("it consists of letters, digits and hyphens")


def _check_inline(text: str) -> None:
    if text:
        raise ValueError("Python's ssl reads it from a file")


def _check_bcrypt_hash(text: str) -> None:
    found = re.fullmatch(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}", text)
    if not found or not LOWEST_COST <= int(found[1]) <= HIGHEST_COST:
        raise ValueError("not a bcrypt hash of such a cost")


def duration_seconds(text: str) -> float:
    """Seconds of a duration as Go writes it, such as 1s, 1m30s, 250ms or 0. Raises ValueError."""
    if text == "0":
        return 0.0
    if not re.fullmatch(f"(?:{DURATION_PART})+", text) or len(text) > 40:
        raise ValueError("it is a number with its unit")
    return sum(float(number) * SECONDS_OF[unit] for number, unit in re.findall(DURATION_PART, text))


FORMS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "pattern": ("a regular expression", _check_pattern),
    "port": ("a port such as mlx5_0/1", _check_port),
    "listen address": ("an address such as 127.0.0.1:10777", listen_address),
    "http address": ("an address such as https://host/path", http_address),
    "header name": ("the name of a header", _check_header_name),
    "duration": ("a time such as 1s, 250ms or 1m30s", duration_seconds),
    "inline PEM": (
        "it in a file that cert_file, key_file or client_ca_file names, not inline",
        _check_inline,
    ),
    "bcrypt hash": (
        f"a bcrypt hash of cost {LOWEST_COST} to {HIGHEST_COST}, as `htpasswd -nBC 10 NAME` prints it",
        _check_bcrypt_hash,
    ),
}
