"""Section `feeds`: carbon intensity and prices."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from clusterwatt.config.model.addresses import HttpAddress
from clusterwatt.config.model.section import Collector, Section, Tick

HeaderName = Annotated[str, Meta(extra={"form": "header name"})]


class GridService(Section, frozen=True):
    """An HTTP service that states the carbon intensity now, as JSON.

    `url`: where it is asked, http or https; empty: nowhere. Redirects are not followed, the proxy of the
    environment is used. `header`: name of a header that holds a key, as `auth-token` or `Authorization`, and
    `header_file` the file with its value, read at each request. `ca_file`: certificates to trust instead of
    the system's.
    `value_path`: where the number stands in the answer, as `carbonIntensity` or `data.0.intensity.actual`;
    `time_path`: where the time stands for which it is stated; empty: it is taken to be that of the answer.
    `unit`: of the number. `basis`: average of all plants, or marginal, of the plant that would follow.
    `every_seconds`: how often it is asked; while it fails, once a minute at most.
    `max_age_seconds`: an older value is not used. `timeout_seconds`: a longer answer is given up.
    """

    url: HttpAddress = ""
    header: HeaderName = ""
    header_file: str = ""
    ca_file: str = ""
    value_path: str = ""
    time_path: str = ""
    unit: Literal["grams_per_kwh", "pounds_per_mwh"] = "grams_per_kwh"
    basis: Literal["average", "marginal"] = "average"
    every_seconds: Annotated[float, Meta(ge=300, le=86_400)] = 300.0
    max_age_seconds: Annotated[float, Meta(ge=300, le=604_800)] = 7_200.0
    timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 10.0


class Grid(Collector, frozen=True):
    """Carbon intensity of the grid. Without a zone, a constant or a service there is none, and no carbon.

    `zone`: of the table that is shipped, as `FR`, `US-TX` or `WORLD`; beside a constant or a service also any
    other name, which is a label then.
    `grams_per_kwh`: the site's own yearly average, in place of the table; 0: none.
    A service that is silent is replaced by these after its `max_age_seconds`; one of marginal intensity by
    nothing, since they are averages.
    """

    every_seconds: Tick = 60.0
    zone: str = ""
    grams_per_kwh: Annotated[float, Meta(ge=0, le=5_000)] = 0.0
    service: GridService = GridService()


class Price(Collector, frozen=True):
    """Prices of energy and of GPUs. Without a book there are none, and no cost.

    `book`: the price book, a YAML file that is read again when it changes (docs/COST.md); empty: none.
    """

    every_seconds: Tick = 1.0
    book: str = ""


class Feeds(Section, frozen=True):
    """Carbon intensity and prices."""

    grid: Grid = Grid()
    price: Price = Price()
