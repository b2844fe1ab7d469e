"""Which form of a page a client wants (RFC 9110, section 12.5)."""

from __future__ import annotations

OPENMETRICS = "application/openmetrics-text"


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics 1.0, and for no other text of ours more strongly.

    The text format is the answer to everything else, also to formats that we do not have: Prometheus takes
    it, and no client is helped by an error.
    """
    openmetrics = text = 0.0
    for media_type, parameters, weight in _elements(accept):
        if media_type == OPENMETRICS and parameters.get("version", "1.0.0") == "1.0.0":
            openmetrics = max(openmetrics, weight)
        elif media_type == "text/plain":
            text = max(text, weight)
    return openmetrics > 0 and openmetrics >= text


def wants_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header names gzip."""
    return any(
        coding in {"gzip", "x-gzip"} and weight > 0 for coding, _, weight in _elements(accept_encoding)
    )


def _elements(header: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, parameters and weight of each element of a header; a weight that is no number counts as none."""
    elements = []
    for element in header.split(","):
        name, *rest = element.split(";")
        parameters = {}
        for parameter in rest:
            key, _, value = parameter.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        weight = parameters.pop("q", "1")
        elements.append((name.strip().lower(), parameters, _weight(weight)))
    return elements


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
