"""The shipped rules, as the tests ask for them."""

from __future__ import annotations

from clusterwatt.rules import shipped
from clusterwatt.rules.shipped import Rule


def alerts() -> dict[tuple[str, str], Rule]:
    """All alerts by name and severity."""
    return {
        (rule.name, rule.severity): rule for file in shipped.files() for rule in file.rules if rule.is_alert
    }
