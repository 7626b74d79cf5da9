"""What is refused before anything runs: a manifest that asks for too much, and a host that cannot hold a guard."""

import tempfile
from pathlib import Path

from sandboxactor import Guard, HostPolicy, Manifest, Policy, PolicyDenied, Sandbox, Unenforceable

MANIFEST = """
action: {name: Greedy.Action}
runtime: {module: ./greedy.so}
sandbox:
  enabled: true
  process: {spawn: true}
  network: {allow: [api.bank.com]}
  memory: {max: 2GiB}
"""

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "greedy.so").touch()
    Path(folder, "action.yaml").write_text(MANIFEST)
    manifest = Manifest.load(Path(folder, "action.yaml"))
try:
    HostPolicy(memory="512MiB").grant(manifest)
except PolicyDenied as error:
    print(error)  # every excess at once, each with its place in the manifest
    assert {excess.path.split("[")[0] for excess in error.excesses} == {
        "$.sandbox.memory.max",
        "$.sandbox.process.spawn",
        "$.sandbox.network.allow",
    }

try:
    Sandbox(Policy.strict(), host=HostPolicy(backends=["native", "rlimits"]))  # no filter, no Landlock: not enough
except Unenforceable as error:
    print(error)  # every guard that nothing holds, with the remedy
    assert {Guard.FILES_SCOPED, Guard.NETWORK_OFF, Guard.NO_SPAWN} <= {missing.guard for missing in error.missing}
else:
    raise AssertionError("a guard without a holder must stop the run")
