"""Landlock's versions are rows of a table: what each handles, what each leaves open."""

from __future__ import annotations

import pytest
from sandboxactor_landlock import abi
from sandboxactor_landlock.host import BACKEND

from sandboxactor import Guard, Policy
from sandboxactor.spi import Landlock, Place, Support


@pytest.mark.parametrize(
    ("version", "rights", "net", "scoped", "open_too"),
    [
        (1, 13, 0, 0, {"truncate", "ioctl-dev"}),
        (2, 14, 0, 0, {"truncate", "ioctl-dev"}),
        (3, 15, 0, 0, {"ioctl-dev"}),
        (4, 15, 3, 0, {"ioctl-dev"}),
        (5, 16, 3, 0, set()),
        (6, 16, 3, 3, set()),
        (7, 16, 3, 3, set()),
        (8, 16, 3, 3, set()),
    ],
)
def test_rows(version: int, rights: int, net: int, scoped: int, open_too: set[str]) -> None:
    """Each version handles exactly its rights and says what it cannot cover."""
    row = abi.row(version)
    assert row is not None
    assert (row.version, row.fs, row.net, row.scoped) == (version, (1 << rights) - 1, net, scoped)
    assert row.leaves == abi.NEVER | open_too


def test_no_row_before_the_first_and_the_last_for_all_later() -> None:
    """No Landlock is no row; a kernel newer than the table is held to what the table knows."""
    assert abi.row(0) is None
    assert abi.row(99) == abi.ROWS[-1]


@pytest.mark.parametrize("row", abi.ROWS, ids=lambda r: f"ABI{r.version}")
def test_rules_use_only_rights_that_the_version_handles(row: abi.Row) -> None:
    """A rule with a right that the ruleset does not handle is EINVAL on that kernel."""
    policy = Policy.strict(tmp="1MiB", workspace="/srv/w", read=["/srv/r"], spawn=True)
    (step,) = BACKEND.steps(policy, Support(True, facts={"abi": row.version}))
    (op,) = step.ops
    assert isinstance(op, Landlock)
    assert all(rule.access & ~op.handled_fs == 0 for rule in op.rules)
    assert ("signals" in step.closes) == (row.version >= 6)
    assert step.covers[Guard.FILES_SCOPED] >= row.leaves


def test_strict_rules_write_and_execute_nothing() -> None:
    """The module's folder and the libraries can be read, and that is all."""
    (step,) = BACKEND.steps(Policy.strict(), Support(True, facts={"abi": 7}))
    (op,) = step.ops
    assert isinstance(op, Landlock)
    assert {rule.access for rule in op.rules} == {abi.READ_FILE | abi.READ_DIR}
    assert op.rules[0].path == Place.SELF.value
    assert "/etc" not in {rule.path for rule in op.rules}
    assert "/usr" not in {rule.path for rule in op.rules}


def test_no_device_is_ever_made() -> None:
    """A writable tree grants no MAKE_CHAR and no MAKE_BLOCK."""
    assert abi.WRITE & (abi.MAKE_CHAR | abi.MAKE_BLOCK) == 0
