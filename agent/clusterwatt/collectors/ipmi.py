"""Power of the node and its inlet temperature from the BMC, through `ipmitool dcmi`.

DCMI 1.5, commands Get Power Reading and Get Temperature Readings. For nodes whose kernel has no power meter
in hwmon. Opt-in: it runs another program, as root, which asks slow firmware; the program has a deadline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from clusterwatt.config.model import IpmiCollector as Settings
from clusterwatt.program import output_of
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import BoardPower, Temperature

POWER = re.compile(r"^\s*Instantaneous power reading:\s*(\d+) Watts", re.MULTILINE)
STATE = re.compile(r"^\s*Power reading state is:\s*(\S+)", re.MULTILINE)
INLET = re.compile(r"^\s*Inlet air temperature\(40h\)\s+(\d+)\s+([+-]?\d+) C", re.MULTILINE)

Run = Callable[[Sequence[str], float], str]


class IpmiCollector:
    """Runs the program twice a pass; each question fails on its own."""

    name = "ipmi"

    def __init__(self, settings: Settings, run: Run | None = None) -> None:
        self._settings = settings
        self._run = run or output_of

    def collect(self) -> Iterator[Reading]:
        """The node's power, and the temperature of the air that it takes in."""
        for ask, question in ((power, ("power", "reading")), (inlet, ("get_temp_reading",))):
            try:
                text = self._run((self._settings.command, "dcmi", *question), self._settings.timeout_seconds)
                yield from ask(text)
            except (OSError, ValueError) as error:
                yield Failure(item=question[0], reason="ipmitool", detail=str(error))


def power(text: str) -> Iterator[Reading]:
    """The answer to `dcmi power reading`. Raises ValueError when there is no power in it."""
    found, state = POWER.search(text), STATE.search(text)
    if found is None:
        raise ValueError("no power reading in the answer")
    # A meter that is switched off states 0 watts.
    if state is None or state[1] != "activated":
        return
    yield BoardPower(sensor="bmc/dcmi", scope="platform", kind="instant", power_watts=float(found[1]))


def inlet(text: str) -> Iterator[Reading]:
    """The answer to `dcmi get_temp_reading`; a BMC need not know its inlet."""
    for instance, celsius in INLET.findall(text):
        yield Temperature(sensor=f"bmc/inlet{instance}", temperature_celsius=float(celsius))
