"""The NVIDIA driver through its binding (package nvidia-ml-py): a session and the GPUs in it.

Every driver call goes through `nvml.calls`. What the driver answers is judged by `nvml.errors`.

A session is one generation of NVML: the library stays mapped once it is loaded (`nvmlShutdown` does not unmap
it), so after a driver upgrade only a fresh process loads the new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.nvml.calls import Calls, decoded
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import (
    GPU_NOT_FOUND,
    DriverUnavailable,
    GenerationOver,
    Meaning,
    Refused,
    device_reason,
    open_reason,
    ruling,
)
from clusterwatt.nvml.library import load_below

log = logging.getLogger("clusterwatt.nvml")


class Versions(msgspec.Struct, frozen=True):
    """Versions as people know them; empty where the driver does not tell."""

    driver: str
    nvml: str
    cuda: str


class Enumeration(msgspec.Struct, frozen=True):
    """GPUs in the order of their index, and by index text why others could not be opened."""

    count: int
    devices: tuple[Device, ...]
    reasons: Mapping[str, str]


class Session:
    """One NVML generation. `took` is told the name and the seconds of every driver call, on its thread.

    `binding`: the module `pynvml`, or a copy of it: a module holds one library.
    `library_roots`: where that is looked for first.

    `open`, `count`, `enumerate` and `close` belong to one thread; each device may have another.
    """

    def __init__(
        self,
        *,
        simulated: bool = False,
        replayed: bool = False,
        clock: Clock | None = None,
        took: Callable[[str, float], None] | None = None,
        slow_s: float | None = None,
        binding: ModuleType | None = None,
        library_roots: Sequence[str] = (),
    ) -> None:
        self.calls = Calls(binding, clock, took, slow_s)
        self._library_roots = library_roots
        self._simulated_label = "replay" if replayed else "true" if simulated else "false"
        self._devices: dict[str, Device] = {}
        self._versions = Versions("", "", "")
        self._initialized = False

    def open(self) -> None:
        """Load the library and start NVML. Raises DriverUnavailable; may be tried again."""
        binding = self.calls.binding
        if not hasattr(binding, "_nvmlGetFunctionPointer"):
            raise DriverUnavailable(
                "wrong_binding",
                f"the module pynvml at {binding.__file__} is not NVIDIA's: another package has taken "
                "its name. Uninstall that package (often pynvml) and install nvidia-ml-py again",
            )
        if self._library_roots and binding.nvmlLib is None:
            binding.nvmlLib = load_below(self._library_roots)
        try:
            if not self._initialized:  # the driver counts its users: one of us is enough
                self.calls.call("nvmlInit")
                self._initialized = True
            self._versions = Versions(
                driver=self._text("nvmlSystemGetDriverVersion"),
                nvml=self._text("nvmlSystemGetNVMLVersion"),
                cuda=self._cuda_version(),
            )
        except Refused as refused:
            raise DriverUnavailable(open_reason(refused.code), str(refused)) from refused

    def versions(self) -> Versions:
        """Versions that the driver stated when it was opened; makes no call."""
        return self._versions

    def count(self) -> int:
        """How many GPUs the driver has, also such as may not be opened.

        Raises GenerationOver or DriverUnavailable.
        """
        try:
            return int(self.calls.call("nvmlDeviceGetCount"))
        except Refused as refused:
            self._raise_if_over(refused)
            if refused.code == GPU_NOT_FOUND:
                return 0
            raise DriverUnavailable(open_reason(refused.code), str(refused)) from refused

    def enumerate(self) -> Enumeration:
        """Open every GPU, each on its own: by index, because a search by UUID fails when any GPU is lost.

        A GPU met before keeps its `Device`, with a new handle and perhaps a new index.
        Raises as `count` does.
        """
        count = self.count()
        devices: list[Device] = []
        reasons: dict[str, str] = {}
        for index in range(count):
            try:
                handle = self.calls.call("nvmlDeviceGetHandleByIndex", index)
                uuid = decoded(self.calls.call("nvmlDeviceGetUUID", handle, undecoded=True))
            except Refused as refused:
                self._raise_if_over(refused)
                reasons[str(index)] = device_reason(refused.code)
                continue
            device = self._devices.get(uuid)
            if device is None:
                device = self._devices[uuid] = Device(
                    self.calls,
                    uuid,
                    simulated_label=self._simulated_label,
                    driver_version=self._versions.driver,
                )
            device.handle, device.gpu = handle, str(index)
            devices.append(device)
        return Enumeration(count, tuple(devices), reasons)

    def close(self) -> None:
        """End NVML; the driver may be unloaded once no process has it open."""
        self._initialized = False
        try:
            self.calls.call("nvmlShutdown")
        except Refused as refused:
            log.debug("%s", refused)

    def _text(self, name: str) -> str:
        try:
            return decoded(self.calls.call(name, undecoded=True))
        except Refused as refused:
            self._raise_if_over(refused)
            return ""

    def _cuda_version(self) -> str:
        # _v2 asks libcuda, which is missing where only the utility capability is mounted.
        for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
            try:
                version = int(self.calls.call(name))
            except Refused as refused:
                self._raise_if_over(refused)
            else:
                return f"{version // 1000}.{version % 1000 // 10}"
        return ""

    def _raise_if_over(self, refused: Refused) -> None:
        what = ruling(refused.code)
        if what.meaning is Meaning.GENERATION:
            raise GenerationOver(what.reason, str(refused)) from refused
