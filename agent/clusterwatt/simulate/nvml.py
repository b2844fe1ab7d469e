"""A simulated NVML library below the real binding.

`install` puts it where the binding keeps the loaded shared library. From there on everything above is the
real thing: the binding packs ctypes arguments, calls a function by its C name, checks the return code, raises
its own exceptions. So struct versions, byte strings, the two-call size protocol and missing functions behave
as they do with a driver. What the functions answer is in `simulate/library/`, what the GPUs do in
`simulate/work.py`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

import pynvml

from clusterwatt.simulate.cards import cards
from clusterwatt.simulate.faults import Faults, Rule
from clusterwatt.simulate.gpu import Gpu, MigDevice, simulated_serial, simulated_uuid
from clusterwatt.simulate.library.alter import alter, alter_entries
from clusterwatt.simulate.library.calls import (
    FUNCTIONS,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    UNINITIALIZED,
    Entry,
    Filled,
    Refused,
)
from clusterwatt.simulate.library.events import EventSet, deliver
from clusterwatt.simulate.partition import partition, usual_tenants, whole
from clusterwatt.simulate.work import EPOCH_S, Tenant, TrainingNode, Work

# Importing an area registers its functions.
for _area in (
    "clocks",
    "ecc",
    "events",
    "fields",
    "gpm",
    "identity",
    "memory",
    "mig",
    "modes",
    "nvlink",
    "pcie",
    "power",
    "processes",
    "samples",
    "system",
):
    importlib.import_module(f"clusterwatt.simulate.library.{_area}")

_BY_REFERENCE: Any = type(ctypes.byref(ctypes.c_uint()))
_SCALAR: Any = ctypes.c_uint.__mro__[1]  # ctypes' own base of its simple types
_WITHOUT_INIT = frozenset({"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString"})


class SimulatedLibrary:
    """A driver with `gpus` cards of one model. Its attributes are the functions of NVML.

    profile: a key of `cards()`. wall_s: the clock; all values follow from it and the seed. driver_version
    decides, like `hidden`, which functions exist. privileged: the caller is root. vgpu_licensed: not None in
    a guest with a vGPU, and then whether its licence is in force. minors, serials, names: one for each board,
    where they should not be the obvious ones. work: what runs where, by default a training node. loaded_s:
    when the driver was loaded, the zero of its counters. `calls` counts the calls by function.
    """

    def __init__(
        self,
        profile: str,
        gpus: int,
        seed: int,
        wall_s: Callable[[], float],
        faults: Faults | None = None,
        *,
        driver_version: str = "590.48.01",
        cuda_version: tuple[int, int] = (13, 1),
        hidden: Collection[str] = (),
        privileged: bool = True,
        vgpu_licensed: bool | None = None,
        minors: Sequence[int] | None = None,
        serials: Sequence[str | None] | None = None,
        names: Mapping[int, bytes] | None = None,
        work: Work | None = None,
        loaded_s: float = EPOCH_S,
    ) -> None:
        card = cards()[profile]
        self._wall_s = wall_s
        self.faults = faults or Faults()
        self.driver_version, self.cuda_version = driver_version, cuda_version
        self.branch = int(driver_version.partition(".")[0])  # 590 of 590.48.01
        self.hidden = set(hidden)
        self.privileged, self.vgpu_licensed = privileged, vgpu_licensed
        self.event_sets: list[EventSet] = []
        self.gpm_threads: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.seed = seed
        self._work = work or TrainingNode(gpus, seed)
        self._cuts: Counter[int] = Counter()
        self.gpus = [
            Gpu(
                self,
                card,
                board,
                seed=seed,
                uuid=simulated_uuid(seed, board),
                minor=minors[board] if minors else board,
                serial=serials[board] if serials else simulated_serial(seed, board) if card.serial else None,
                name=(names or {}).get(board, card.name.encode()),
                tenant=self._work.tenant(board),
                loaded_s=loaded_s,
            )
            for board in range(gpus)
        ]
        self._users = 0
        self._objects: dict[int, object] = {}
        self._tokens: dict[int, Any] = {}
        self._lock = threading.Lock()

    def wall_s(self) -> float:
        """The time of the simulation."""
        return self._wall_s()

    @property
    def initialized(self) -> bool:
        """Whether some user has initialised the library and not shut it down."""
        return self._users > 0

    def unload(self) -> None:
        """Leave no user, as when the process ends."""
        with self._lock:
            self._users = 0

    def gpu(self, board: int) -> Gpu:
        """A board, for tests that change it."""
        return self.gpus[board]

    def visible(self) -> list[Gpu]:
        """The boards that the driver counts; the place in the list is the NVML index."""
        shown = [gpu for gpu in self.gpus if gpu.board not in self.faults.vanished]
        return shown if self.faults.gpus is None else shown[: self.faults.gpus]

    def configure_mig(
        self, board: int, profiles: Sequence[str] | None, tenants: Sequence[Tenant] | None = None
    ) -> None:
        """Cut a board into MIG instances, while it runs.

        profiles: their names; None ends MIG mode, an empty list leaves no instance. tenants: one for each; by
        default the board's own is on the first and a holder that does nothing on the second. Handles of the
        old instances become invalid, and the new ones have other UUIDs.
        """
        gpu, now_s = self.gpus[board], self.wall_s()
        for device in gpu.mig_devices:
            self.drop(device)
            self.drop(device.gpu_instance)
        usual = self._work.tenant(board)
        if profiles is None:
            gpu.mig_enabled, gpu.mig_devices = False, []
            gpu.occupy(usual, now_s)
            return
        devices = partition(
            gpu,
            profiles,
            usual_tenants(usual) if tenants is None else tenants,
            seed=self.seed,
            generation=self._cuts[board],
        )
        self._cuts[board] += 1
        gpu.mig_enabled, gpu.mig_devices = True, devices
        multiprocessors = max(profile.multiprocessors for profile in gpu.card.mig_profiles)
        gpu.occupy(Tenant(whole(devices, multiprocessors)), now_s)

    def inject_xid(self, board: int, xid: int, instance: int | None = None) -> None:
        """Raise an XID now: sets that have the board registered get it, others never see it."""
        self.faults.xid(board, xid, instance=instance)
        deliver(self)
        for event_set in self.event_sets:
            with event_set.changed:
                event_set.changed.notify_all()

    def reload_driver(self) -> None:
        """All counters begin again at zero, as after a driver reload or a GPU reset."""
        now_s = self.wall_s()
        for gpu in self.gpus:
            gpu.loaded_s = now_s

    # --- initialisation and handles ------------------------------------------------------------------

    def begin(self) -> None:
        """Count a user in."""
        with self._lock:
            self._users += 1

    def end(self) -> None:
        """Count a user out; with the last one, all handles become invalid."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._objects.clear()
                self._tokens.clear()
                self.event_sets.clear()

    def point(self, pointer: Filled, target: object) -> None:
        """Make a handle of the caller stand for an object; the same object always gets the same address."""
        with self._lock:
            token = self._tokens.get(id(target))
            if token is None:
                token = type(pointer)._type_()  # an opaque struct: what counts is where it lies
                self._tokens[id(target)] = token
                self._objects[ctypes.addressof(token)] = target
        pointer.contents = token

    def point_member(self, struct: Filled, name: str, target: object) -> None:
        """Make a handle inside a struct stand for an object."""
        pointer = type(getattr(struct, name))()
        self.point(pointer, target)
        setattr(struct, name, pointer)

    def drop(self, target: object) -> None:
        """Forget an object; its handles become invalid."""
        with self._lock:
            token = self._tokens.pop(id(target), None)
            if token is not None:
                del self._objects[ctypes.addressof(token)]

    def target(self, handle: Filled) -> object:
        """The object that a handle stands for."""
        try:
            return self._objects[ctypes.addressof(handle.contents)]
        except (AttributeError, KeyError, ValueError):  # not a handle, an old handle, a null pointer
            raise Refused(INVALID_ARGUMENT) from None

    # --- calls ---------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., object]:
        entry = FUNCTIONS.get(name)
        if entry is None or name in self.hidden or self.branch < entry.since:
            raise AttributeError(f"undefined symbol: {name}")

        def call(*arguments: object) -> object:
            return self._call(name, entry, arguments)

        return call

    def _call(self, name: str, entry: Entry, arguments: tuple[object, ...]) -> object:
        with self._lock:
            self.calls[name] += 1
        self.faults.refresh()
        if name == "nvmlErrorString":  # the only one that returns a text, and that cannot fail
            return entry.function(self, *arguments)
        if not self._users and name not in _WITHOUT_INIT:
            return UNINITIALIZED
        try:
            if entry.on == "system":
                self._run(name, entry, self, None, arguments)
            else:
                device = self._device(arguments[0], entry.on)
                self._run(name, entry, device, device.board, arguments[1:])
        except Refused as refused:
            return refused.code
        return SUCCESS

    def _device(self, handle: object, wanted: str) -> Gpu | MigDevice:
        device = self.target(handle)
        if not isinstance(device, Gpu | MigDevice):
            raise Refused(INVALID_ARGUMENT)
        if device.board in self.faults.vanished:
            raise Refused(GPU_IS_LOST)
        if wanted == "gpu" and isinstance(device, MigDevice):
            raise Refused(NOT_SUPPORTED)
        return device

    def _run(
        self, name: str, entry: Entry, subject: object, board: int | None, arguments: Sequence[object]
    ) -> None:
        changes = self.meet(name, board)
        entry.function(subject, *[_plain(argument) for argument in arguments])
        if not changes:
            return
        filled = [_plain(a) for a in arguments if isinstance(a, _BY_REFERENCE | ctypes.Array)]
        for rule in changes:
            if rule.field is None:
                alter(filled, rule.value)
            else:
                alter_entries(filled, rule)

    def meet(self, name: str, board: int | None, *, narrowed: bool = False) -> list[Rule]:
        """Let the faults of a call happen: hang, or fail; what remains are changes to its results.

        narrowed: the call turns out to be about this board, after the rules for any have been met.
        """
        changes = []
        for rule in self.faults.meeting(name, board, self.wall_s(), narrowed=narrowed):
            if rule.hang_s is not None:
                rule.hang(lambda rule=rule: self.faults.stands(rule))  # type: ignore[misc]
            elif rule.code is not None and rule.field is None:
                raise Refused(rule.code)
            else:
                changes.append(rule)
        return changes


def install(library: SimulatedLibrary, binding: ModuleType = pynvml) -> None:
    """Make the binding use this library; may be called again with another one."""
    _unload(binding)
    binding.nvmlLib = library  # type: ignore[attr-defined]  # a global of the binding's
    binding._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding offers no other way


def another_binding() -> ModuleType:
    """A copy of the module `pynvml` with a library of its own: its handle is a global there."""
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise ImportError("pynvml cannot be loaded again")
    # Under a name of its own: the module adds its classes of errors to whichever module has its name.
    spec = importlib.util.spec_from_file_location("another_pynvml", found.origin)
    if spec is None or spec.loader is None:
        raise ImportError("pynvml cannot be loaded again")
    binding = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = binding
    try:
        spec.loader.exec_module(binding)
    finally:
        del sys.modules[spec.name]
    return binding


def uninstall() -> None:
    """Let the binding load the machine's own library again, as in a fresh process."""
    _unload(pynvml)
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - as in install
    pynvml._nvmlLib_refcount = 0  # noqa: SLF001


def _unload(binding: ModuleType) -> None:
    """Whoever still waits in the library that goes is told that it is not initialised any more."""
    if isinstance(binding.nvmlLib, SimulatedLibrary):
        binding.nvmlLib.unload()


def _plain(argument: Any) -> Any:
    """What a function sees of an argument: the object behind a reference, the number behind a value."""
    if isinstance(argument, _BY_REFERENCE):
        return argument._obj  # noqa: SLF001 - ctypes has no public way back from byref()
    return argument.value if isinstance(argument, _SCALAR) else argument
