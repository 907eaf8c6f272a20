"""An nn.Module as a function of one flat row: (params, buffers, x) -> (output, buffers after)."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from fedamp.errors import UserError
from fedamp.models.cutting import cut
from fedamp.models.left_behind import Untouched
from fedamp.models.side_by_side import StackedModule
from fedamp.models.train_modes import Modes
from fedamp.rows import Rows


class FlatModel:
    """A module whose learned values are a row of d parameters, and its statistics a row of b buffer values.

    Parameters that do not require a gradient, and buffers that are not persistent, are constants: they stay in
    the module, are never sent, and are the same for all clients. What a pass writes to such a buffer or to an attribute
    is undone after it. Integer buffers (a count of batches) travel as floats and are rounded back.

    Parts that were given in eval mode (a frozen BatchNorm) stay in it while the others train. A module that was given
    in eval mode as a whole, as after loading, trains as a whole.
    """

    def __init__(self, module: nn.Module) -> None:
        _check_shaped(module)
        self._given = module  # never called here: a pass may leave traces in a module
        self.module = copy.deepcopy(module)
        persistent = self.module.state_dict(keep_vars=True)
        self._params = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        self._buffers = {n: b for n, b in self.module.named_buffers() if n in persistent}
        if not self._params:
            raise UserError(f"{type(module).__name__} has no parameter that requires a gradient: nothing to train")
        dtypes = {p.dtype for p in self._params.values()}
        if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
            names = ", ".join(sorted(str(t) for t in dtypes))
            raise UserError(f"{type(module).__name__} has parameters of {names}; expected one floating type")
        for name, buffer in self._buffers.items():
            if not buffer.isfinite().all():
                raise UserError(
                    f"buffer {name!r} of {type(module).__name__} is not finite, so it can't be mixed between "
                    "clients; if it is a constant (a mask, say), register it with persistent=False"
                )
        self.dtype = dtypes.pop()
        self._modes = Modes(self.module)
        self._untouched = Untouched(self.module)
        self._shapes = {name: value.shape for name, value in self._params.items()}
        self._buffer_shapes = {name: value.shape for name, value in self._buffers.items()}
        self._stacked = StackedModule.of(self.module, self._shapes)

    @property
    def num_params(self) -> int:
        """d: how many values are learned."""
        return sum(p.numel() for p in self._params.values())

    @property
    def num_buffers(self) -> int:
        """b: how many values are carried along."""
        return sum(b.numel() for b in self._buffers.values())

    @property
    def params(self) -> Mapping[str, Tensor]:
        """The learned values by name, in the order of a row's columns."""
        return self._params

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        """The values that are carried along, likewise."""
        return self._buffers

    @property
    def constants(self) -> list[str]:
        """The names of values that are in no row: frozen parameters, and buffers that are not persistent."""
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return [name for name in named if name not in self._params and name not in self._buffers]

    @property
    def variances(self) -> Tensor:
        """Which buffer values are variances, `(b,)` bool: a negative one would make a model useless."""
        parts = [torch.full((b.numel(),), n.endswith("running_var")) for n, b in self._buffers.items()]
        return torch.cat([*parts, torch.empty(0, dtype=torch.bool)])

    def row(self, module: nn.Module | None = None) -> Rows:
        """Return a module's values (by default the ones this model was made with) as a stack of height one."""
        if module is None:
            params, buffers = self._params, self._buffers
        else:
            state = module.state_dict(keep_vars=True)
            params, buffers = ({name: state[name] for name in kind} for kind in (self._params, self._buffers))
        return Rows(self._flatten(params), self._flatten(buffers))

    def _flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        parts = [value.detach().to(self.dtype).reshape(-1) for value in named.values()]
        device = next(iter(self._params.values())).device
        return torch.cat([*parts, torch.empty(0, dtype=self.dtype, device=device)])[None]

    def unflatten(self, params: Tensor, buffers: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return rows `(d,)` and `(b,)` as the module's named parameters and buffers.

        Buffers are copies: a training pass writes into them.
        """
        return self.named(params), self._carried(buffers)

    def _carried(self, buffers: Tensor) -> dict[str, Tensor]:
        return {name: _restore(value, self._buffers[name]) for name, value in cut(buffers, self._buffer_shapes).items()}

    def state_dict(self, row: Rows) -> dict[str, Tensor]:
        """Return a stack of height one as a state dict for the module: constants included."""
        params, buffers = self.unflatten(row.params[0], row.buffers[0])
        values = {id(self._params[name]): value for name, value in params.items()}
        values |= {id(self._buffers[name]): value for name, value in buffers.items()}
        # By identity, not by name: a weight that two layers share is listed under both names.
        named = self.module.state_dict(keep_vars=True)
        return {name: values.get(id(own), own).detach().clone() for name, own in named.items()}

    def __call__(self, params: Tensor, buffers: Tensor, x: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Return the module's output at a row, and its buffers after the pass."""
        self._modes.set(training)
        with self._untouched.kept():
            # A module may write into its weights (a clamp, an Embedding's max_norm): no score may change a model.
            return self._pass(params if training else params.clone(), buffers, x)

    def named(self, params: Tensor) -> dict[str, Tensor]:
        """Return rows `(n, d)` as the module's named parameters, `(n, ...)`; one row `(d,)` likewise."""
        return cut(params, self._shapes)

    def at(self, named: Mapping[str, Tensor], buffers: Tensor, x: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Do the same at named parameters: how their gradients are joined into rows, if at all, is the caller's."""
        self._modes.set(training)
        with self._untouched.kept():
            return self._pass_at(named, buffers, x)

    def leaving_traces(self, params: Tensor, buffers: Tensor, x: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Do the same, but keep whatever the module writes: to see what it does when left to itself."""
        self._modes.set(training)
        return self._pass(params, buffers, x)

    def _pass(self, params: Tensor, buffers: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._pass_at(self.named(params), buffers, x)

    def _pass_at(self, named: Mapping[str, Tensor], buffers: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        values = {**named, **self._carried(buffers)}
        output = functional_call(self.module, values, (x,))
        # functional_call writes back what the pass put in the place of a buffer.
        after = [values[name].to(buffers.dtype).reshape(-1) for name in self._buffers]
        return output, torch.cat(after) if after else buffers

    def twin(self) -> FlatModel:
        """Return a model for another thread: the same function, in a module of its own. Values are shared, not copied.

        A pass puts a row's values into the module, so that no two threads can use one.
        """
        twin = copy.copy(self)
        values = [*self.module.parameters(), *self.module.buffers()]
        twin.module = copy.deepcopy(self.module, {id(value): value for value in values})
        twin._modes, twin._untouched, twin._stacked = self._modes.of_copy(twin.module), Untouched(twin.module), None
        return twin

    def fresh(self) -> nn.Module:
        """Return a copy of the module as it was given, to try things with."""
        return copy.deepcopy(self._given)

    @property
    def side_by_side(self) -> bool:
        """Whether `stacked` can run this module; if not, n clients are a vmap of calls."""
        return self._stacked is not None

    def only_vmap(self) -> None:
        """Never run clients side by side, even though the module's layers are known."""
        self._stacked = None

    def compile(self, wanted: bool) -> None:
        """Run `stacked` training passes compiled, or plain again."""
        if self._stacked is not None:
            self._stacked.compile(wanted)

    @property
    def compiled(self) -> bool:
        """Whether `stacked` training passes run compiled."""
        return self._stacked is not None and self._stacked.compiled is not self._stacked.plain

    def pools_in_one(self, x: Tensor) -> bool:
        """Return whether `stacked` passes have kernels of their own for the pools of pictures like these."""
        return self._stacked is not None and self._stacked.pools_in_one(x)

    def stacked(self, params: Tensor, buffers: Tensor, x: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Return outputs `(n, B, k)` of n clients `(n, d)` on inputs `(n, B, ...)`, and their buffers `(n, b)`."""
        if self._stacked is None:
            raise ValueError(f"{type(self.module).__name__} has a layer that does not take clients side by side")
        carried = self._carried(buffers)
        output = self._stacked(params, carried, x, training)
        after = [carried[name].to(buffers.dtype).reshape(len(buffers), -1) for name in self._buffers]
        return output, torch.cat(after, 1) if after else buffers


def _check_shaped(module: nn.Module) -> None:
    """Raise if the shape of some values is not known before a first call, as in nn.LazyLinear."""
    values = [*module.named_parameters(), *module.named_buffers()]
    if lazy := [name for name, value in values if is_lazy(value)]:
        raise UserError(
            f"{type(module).__name__} has values without a shape ({', '.join(lazy[:3])}{', ...' if lazy[3:] else ''}), "
            "as lazy layers have before their first call; call the module once on a sample, model(x[:2]), before it is "
            "given or returned"
        )


def _restore(value: Tensor, like: Tensor) -> Tensor:
    """Return a copy of a carried value in its buffer's own type."""
    if not like.dtype.is_floating_point:
        value = value.round()
    return value.to(like.dtype, copy=True)
