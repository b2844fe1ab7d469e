"""Driver calls of one NVML generation: each goes through here, is timed, and raises `Refused` or nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from clusterwatt.clock import Clock
from clusterwatt.nvml.errors import FUNCTION_NOT_FOUND, UNDECODABLE, Refused

EVENT_WAIT = "nvmlEventSetWait_v2"  # lasts as long as nothing happens: its time says nothing of the driver


class Calls:
    """The way to the library. `took` is told the name and the seconds of every call, on its thread.

    `slow_s`: what takes longer is slow.
    """

    def __init__(
        self,
        binding: ModuleType | None,
        clock: Clock | None,
        took: Callable[[str, float], None] | None,
        slow_s: float | None,
    ) -> None:
        if binding is None:
            import pynvml  # 3 MiB that the agent, which only speaks to the host, is to do without

            binding = pynvml
        self.binding: Any = binding
        self.clock = clock
        self._took = took
        self._slow_s = slow_s

    def call(self, name: str, *arguments: Any, undecoded: bool = False) -> Any:
        """Make one driver call. Raises Refused, and nothing else that driver or binding raise.

        `undecoded`: leave text as the bytes that the driver gave, where the binding would decode them.
        """
        function = getattr(self.binding, name, None)
        if function is None:
            raise Refused(name, FUNCTION_NOT_FOUND)  # the binding is older than the function
        return self._timed(name, inspect.unwrap(function) if undecoded else function, arguments)

    def raw_call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library itself, where the binding's wrapper is slow or calls it twice."""
        find = self.binding._nvmlGetFunctionPointer  # noqa: SLF001 - the binding's own way to a function
        code = self._timed(name, lambda: find(name)(*arguments), ())
        if code != 0:
            raise Refused(name, code)

    def now_s(self) -> float:
        """Monotonic time; 0 without a clock."""
        return self.clock.monotonic_s() if self.clock else 0.0

    def slow(self, since_s: float) -> bool:
        """Whether a call that was made at that time has taken long."""
        return self._slow_s is not None and self.now_s() - since_s > self._slow_s

    def _timed(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        started_s = self.clock.monotonic_s() if self.clock else 0.0
        try:
            return function(*arguments)
        except self.binding.NVMLError as error:
            raise Refused(name, int(error.value)) from None
        except self.binding.NVMLLibraryMismatchError:  # no NVMLError: an unversioned function is missing
            raise Refused(name, FUNCTION_NOT_FOUND) from None
        except UnicodeDecodeError:
            raise Refused(name, UNDECODABLE) from None
        finally:
            if self._took and self.clock and name != EVENT_WAIT:
                self._took(name, self.clock.monotonic_s() - started_s)


def decoded(text: bytes | str) -> str:
    """A text of the driver; bytes that are not UTF-8 become U+FFFD."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
