"""Units, named as Grafana names them."""

from __future__ import annotations

RATIO, COUNT, WATT, KWH, CELSIUS, BYTES, BYTES_S, BITS_S = (
    *("percentunit", "none", "watt", "kwatth", "celsius", "bytes", "Bps", "bps"),
)
SECONDS, HOURS, DAYS, HERTZ, GRAMS, PER_S, MONEY = "s", "h", "d", "hertz", "massg", "cps", "currency: "
