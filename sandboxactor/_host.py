"""What a host grants, and the only place where a request is compared with a ceiling.

Nothing is clipped: what goes beyond is refused, all of it at once. Paths are compared with symlinks resolved, and the
resolved ones are granted, so that what was compared is what a worker gets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from sandboxactor import _units as units
from sandboxactor._policy import (
    Policy,
    Terms,
    name_converters,
    nearest,
    parse_flag,
    parse_items,
    parse_path,
    parse_tmp,
    strict_keywords,
)
from sandboxactor._units import MIB, quoted
from sandboxactor.errors import Excess, InvalidPolicy, PolicyDenied
from sandboxactor.spi import Guard

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from sandboxactor._manifest import Manifest

__all__ = ["HostPolicy"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_CIDR = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")
_TMP_DEFAULT = 64 * MIB

_BUDGETS: dict[str, Callable[[Any], str]] = {
    "memory": units.format_size,
    "cpu": units.format_cpu,
    "processes": str,
    "timeout": units.format_time,
    "output": units.format_size,
    "input": units.format_size,
    "tmp": units.format_size,
    "state_max": units.format_size,
}


def _names(value: object) -> tuple[str, ...]:
    names = parse_items(value)
    for at, name in enumerate(names):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{quoted(name)} is no name: write letters, digits, '_', '.' and '-'")
        if name in names[:at]:
            raise ValueError(f"{quoted(name)} stands twice")
    return tuple(str(name) for name in names)


def _backends(value: object) -> tuple[str, ...] | None:
    return None if value is None else _names(value)


def _features(value: object) -> tuple[str, ...]:
    return tuple(sorted(_names(value)))


def _python(value: object) -> str | None:
    return None if value is None else parse_path(value)


def _waive(value: object) -> frozenset[Guard]:
    return frozenset(_guard(item) for item in parse_items(value))


def _guard(value: object) -> Guard:
    if isinstance(value, Guard):
        return value
    if isinstance(value, str) and value.upper() in Guard.__members__:
        return Guard[value.upper()]
    hint = nearest(value.upper(), Guard.__members__) if isinstance(value, str) else "write Guard.CPU_MAX or 'CPU_MAX'"
    raise ValueError(f"{quoted(value)} is no guard: {hint}")


def _networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    made = {_cidr(item) for item in parse_items(value)}
    return tuple(sorted(made, key=lambda net: (net.version, int(net.network_address), net.prefixlen)))


def _cidr(value: object) -> IPv4Network | IPv6Network:
    import ipaddress

    if isinstance(value, (ipaddress.IPv4Network, ipaddress.IPv6Network)):
        return value
    if not isinstance(value, str) or not _CIDR.fullmatch(value):
        raise ValueError(f"{quoted(value)} is no network: write it in CIDR form, such as 10.0.0.0/8")
    try:
        return ipaddress.ip_network(value, strict=True)
    except ValueError as error:
        raise ValueError(f"{quoted(value)} is no network: {error}; write it in CIDR form, such as 10.0.0.0/8") from None


@strict_keywords
@attrs.frozen(kw_only=True, field_transformer=name_converters)
class HostPolicy(Terms):
    """The ceilings of a host, its backends, its vault and its waivers. Frozen, hashable; picklable where its vault is.

    The fields of `Policy` are ceilings: budgets as strict's defaults (`tmp` 64 MiB), capabilities nothing. `networks`
    are CIDRs that egress may reach although they are not global. `backends` names the backends in the order of trial,
    None for the built-in ones. `waive` drops guards (`Guard` or name), which every Result shows. `features` are WASM
    proposals, `python` the interpreter of WASM workers. Errors are InvalidPolicy.
    """

    tmp: int | None = attrs.field(default=_TMP_DEFAULT, converter=parse_tmp)
    networks: tuple[IPv4Network | IPv6Network, ...] = attrs.field(default=(), converter=_networks)
    vault: Any = attrs.field(default=None, hash=False)
    backends: tuple[str, ...] | None = attrs.field(default=None, converter=_backends)
    waive: frozenset[Guard] = attrs.field(default=frozenset(), converter=_waive)
    features: tuple[str, ...] = attrs.field(default=(), converter=_features)
    python: str | None = attrs.field(default=None, converter=_python)
    wasm_in_process: bool = attrs.field(default=False, converter=parse_flag)

    def grant(self, request: Manifest | Policy) -> Policy:
        """The policy that this host agrees to, or PolicyDenied with every excess and its path in the request.

        A budget that a manifest leaves out is strict's default (64 MiB of /tmp), lowered to the ceiling. The paths of
        what is granted are resolved.
        """
        asked, place = self._asked(request)
        real = {path: os.path.realpath(path) for path in (*asked.read, *_listed(asked.workspace))}
        excesses = [*self._budgets(asked, place), *self._capabilities(asked, place), *self._paths(asked, place, real)]
        if excesses:
            raise PolicyDenied(excesses)
        workspace = None if asked.workspace is None else real[asked.workspace]
        return attrs.evolve(asked, read=tuple(real[path] for path in asked.read), workspace=workspace)

    def _asked(self, request: Manifest | Policy) -> tuple[Policy, Callable[[str, str], str]]:
        """The request as a policy, and where in it a field (and an item of it) stands."""
        if isinstance(request, Policy):
            return request, lambda field, item: field
        from sandboxactor._manifest import Manifest

        if not isinstance(request, Manifest):
            raise InvalidPolicy(f"grant: {quoted(request)} is no request: give a Manifest or a Policy")
        asked = request.asked
        lowered = {}
        for name in request.omitted:
            ceiling = getattr(self, name)
            lowered[name] = getattr(asked, name) if ceiling is None else min(getattr(asked, name), ceiling)
        return attrs.evolve(asked, **lowered), request.place

    def _budgets(self, asked: Policy, place: Callable[[str, str], str]) -> Iterator[Excess]:
        for name, show in _BUDGETS.items():
            want, ceiling = getattr(asked, name), getattr(self, name)
            if want is None or (name == "state_max" and not asked.state):
                continue
            if ceiling is None:
                yield Excess(place(name, ""), show(want), "none")
            elif want > ceiling:
                yield Excess(place(name, ""), show(want), show(ceiling))

    def _capabilities(self, asked: Policy, place: Callable[[str, str], str]) -> Iterator[Excess]:
        for name in ("spawn", "state"):
            if getattr(asked, name) and not getattr(self, name):
                yield Excess(place(name, ""), "true", "false")
        for entry in asked.network:
            if not any(ceiling.covers(entry) for ceiling in self.network):
                yield Excess(place("network", str(entry)), str(entry), _list(self.network))
        for secret in asked.secrets:
            if secret not in self.secrets:
                yield Excess(place("secrets", secret), secret, _list(self.secrets))
        for name, value in asked.env.items():
            if self.env.get(name) != value:  # a value may be a secret: names alone are shown
                ceiling = "another value" if name in self.env else _list(self.env)
                yield Excess(place("env", name), quoted(name), ceiling)

    def _paths(self, asked: Policy, place: Callable[[str, str], str], real: dict[str, str]) -> Iterator[Excess]:
        for field, paths, ceilings in (
            ("read", asked.read, self.read),
            ("workspace", _listed(asked.workspace), _listed(self.workspace)),
        ):
            trees = [os.path.realpath(tree) for tree in ceilings]
            for path in paths:
                if not any(_lies_in(real[path], tree) for tree in trees):
                    asks = path if real[path] == path else f"{path} (that is {real[path]})"
                    yield Excess(place(field, path), asks, _list(ceilings))


def _lies_in(path: str, tree: str) -> bool:
    return path == tree or path.startswith(tree.rstrip("/") + "/")


def _listed(path: str | None) -> tuple[str, ...]:
    return () if path is None else (path,)


def _list(items: Any) -> str:
    return ", ".join(str(item) for item in items) or "none"
