"""A digest of what code does: of a user's functions and classes, and of everything that they use.

It is taken from the code that is loaded, not from its file, which may have been edited since: a name is followed to the
function, class or number that it stands for. Libraries (torch, the standard library, this package) are known by their
names alone. Another version of Python compiles to other bytes, and so gives another digest.
"""

from __future__ import annotations

import copy
import dis
import functools
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp import errors

LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(errors.__file__).resolve().parent), str(Path(torch.__file__).resolve().parent)}
)
PACKAGES = frozenset({"site-packages", "dist-packages"})
"""What folders of installed packages are called."""
MODULE = frozenset(vars(nn.Module()))
"""What every module has: its parts, values and hooks, which are read one by one."""
RECORDED_AS = {
    "fedamp.models.zoo": "fedamp.models",
    **{f"fedamp.methods.attention.{part}": "fedamp.attention" for part in ("functions", "similarity", "weights")},
}
"""Where modules of this package used to be: digests keep the old names, so that old run folders are still known."""
PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype)


def code_digest(*things: Any) -> str:
    """Return a digest of functions, classes and modules, and of what they use that is not a library's."""
    reader = _Reader()
    for thing in things:
        reader.read(thing)
    return reader.sum.hexdigest()


def structure_digest(module: nn.Module, builder: Any = None) -> str:
    """Return a digest of a module's code and structure, and of what built it; its learned values are left out."""
    hollow = copy.deepcopy(module)
    with torch.no_grad():
        for values in (*hollow.parameters(), *hollow.buffers()):
            values.zero_()
    return code_digest(builder, hollow)


def is_own(name: str | None) -> bool:
    """Return whether a module, by its name, is a user's own, and neither a library's nor built in."""
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if file is None:
        return name == "__main__"  # a notebook, or a prompt
    path = Path(file).resolve()
    # Packages may be installed in several places: for one user, for the system, for an environment below this one.
    installed = not PACKAGES.isdisjoint(path.parts)
    return not installed and not str(path).startswith(tuple(folder + os.sep for folder in LIBRARIES))


class _Reader:
    """Walks from thing to thing, each once, and sums up what it reads."""

    def __init__(self) -> None:
        self.sum = hashlib.sha256()
        self.whole: nn.Module | None = None  # the network that is read
        self.seen: dict[int, Any] = {}  # the things themselves too: an address is only theirs while they live

    def add(self, kind: str, text: object) -> None:
        self.sum.update(f"{kind}\0{text}\0".encode("utf-8", "surrogatepass"))

    def read(self, thing: Any) -> None:
        """Add a thing, and what it refers to."""
        if isinstance(thing, PLAIN):
            return self.add("value", repr(thing))
        if id(thing) in self.seen:
            return self.add("again", list(self.seen).index(id(thing)))
        self.seen[id(thing)] = thing
        if isinstance(thing, Tensor | np.ndarray):
            self._numbers(thing)
        elif isinstance(thing, nn.Module):
            self._module(thing)
        elif isinstance(thing, list | tuple | dict | set | frozenset):
            self._container(thing)
        elif isinstance(thing, functools.partial):
            for part in (thing.func, thing.args, thing.keywords):
                self.read(part)
        elif isinstance(thing, MethodType):
            self.read([thing.__func__, thing.__self__])
        elif isinstance(thing, ModuleType) and is_own(thing.__name__):
            self._file(thing)
        elif isinstance(thing, FunctionType) and is_own(thing.__module__):
            self._function(thing)
        elif isinstance(thing, type) and is_own(thing.__module__):
            self._class(thing)
        elif not isinstance(thing, type) and is_own(type(thing).__module__):  # an object of a user's class
            self.read([type(thing), getattr(thing, "__dict__", {})])
        else:  # a library's, of which only the name or the kind is known
            name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__qualname__", None)
            module = getattr(thing, "__module__", "")
            self.add("named", f"{RECORDED_AS.get(module, module)}.{name or type(thing).__qualname__}")

    def _numbers(self, numbers: Tensor | NDArray[Any]) -> None:
        if isinstance(numbers, Tensor):
            self.add("tensor", f"{numbers.dtype} {tuple(numbers.shape)}")
            self.sum.update(numbers.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            self.add("array", f"{numbers.dtype} {numbers.shape}")
            self.read(numbers.tolist() if numbers.dtype.hasobject else numbers.tobytes())

    def _container(self, thing: Any) -> None:
        if isinstance(thing, dict):
            self.add("mapping", len(thing))
            for key, entry in thing.items():
                self.read(key)
                self.read(entry)
        elif isinstance(thing, list | tuple):
            self.add("sequence", len(thing))
            for entry in thing:
                self.read(entry)
        else:
            self.add("set", sorted(code_digest(entry) for entry in thing))  # in an order that every process has

    def _module(self, module: nn.Module) -> None:
        """Add a network: its class, its settings, its values, its hooks and its parts."""
        self.add("module", type(module).__qualname__)
        self.read(type(module))
        if self.whole is None:
            self.whole = module
        # A part that is in another mode than the whole stays in it; which mode all are in does not matter.
        self.add("mode", module.training == self.whole.training)
        for name, value in vars(module).items():
            if name not in MODULE:
                self.add("attribute", name)
                self.read(value)
        for name, hooks in vars(module).items():
            if name.endswith("_hooks") and hooks:
                self.add("hooks", name)
                self.read(list(hooks.values()))
        for kind in (module._parameters, module._buffers):
            for name, tensor in kind.items():
                self.add("values", f"{name} {getattr(tensor, 'requires_grad', None)}")
                self.read(tensor)
        for name, part in module.named_children():
            self.add("part", name)
            self.read(part)

    def _class(self, kind: type) -> None:
        self.add("class", kind.__qualname__)
        for base in kind.__bases__:
            self.read(base)
        for name, value in vars(kind).items():
            if not name.startswith("__") or callable(value):
                self.add("member", name)
                self.read(_unwrapped(value))

    def _function(self, function: Any) -> None:
        self.add("function", function.__qualname__)
        self._code(function.__code__)
        self.read(list(function.__defaults__ or ()))
        self.read(dict(function.__kwdefaults__ or {}))
        for cell in function.__closure__ or ():
            try:
                self.read(cell.cell_contents)
            except ValueError:  # not filled yet: a class that is being made
                self.add("cell", "empty")
        for name in dict.fromkeys(_names(function.__code__)):
            if name in function.__globals__:
                self.add("global", name)
                self.read(_unwrapped(function.__globals__[name]))
        for name in dict.fromkeys(_imports(function.__code__)):  # inside a function: not among its globals
            if is_own(name) and name in sys.modules:
                self.read(sys.modules[name])

    def _file(self, module: ModuleType) -> None:
        """Add a user's module: all that is in it, and the modules below it."""
        self.add("file", module.__name__)
        for name, value in vars(module).items():
            if not name.startswith("__"):
                self.add("entry", name)
                self.read(_unwrapped(value))

    def _code(self, code: CodeType) -> None:
        self.sum.update(code.co_code)
        self.add("names", (code.co_names, code.co_varnames, code.co_freevars))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant)
            else:
                self.read(constant)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the code inside it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _unwrapped(value: Any) -> Any:
    """Return the function behind a property, a class method or a cache."""
    if isinstance(value, property):
        return [part for part in (value.fget, value.fset, value.fdel) if part is not None]
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    if isinstance(value, functools.cached_property):
        return value.func
    # A function that wraps another holds it in its closure, where it is read.
    return value if isinstance(value, FunctionType | type) else getattr(value, "__wrapped__", value)


def _imports(code: CodeType) -> Iterator[str]:
    """Yield the modules that code and the code inside it import."""
    yield from (str(step.argval) for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant)
