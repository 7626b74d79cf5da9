"""The Pix example answers true BR Codes, and each fault with its own code, in a process that has next to nothing.

The module is native: it is loaded in a child, never here. The child gives it 8 MiB of address space and a small stack.
"""

import binascii
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

PIX = Path(__file__).parents[2] / "examples" / "pix"
Ask = Callable[..., tuple[str, str | None]]
pytestmark = pytest.mark.timeout(300)  # A first build compiles Zig's runtime too.

CODES = [
    *("ok", "bad_call", "payload_too_large", "invalid_json", "wrong_type"),
    *("unknown_member", "duplicate_member", "missing_member", "invalid_key", "invalid_amount", "invalid_merchant_name"),
    *("invalid_merchant_city", "invalid_txid", "invalid_description", "account_too_long", "out_of_memory"),
]
MANUAL = (
    "00020126580014br.gov.bcb.pix0136123e4567-e12b-12d1-a456-426655440000520400005303986"
    "5802BR5913Fulano de Tal6008BRASILIA62070503***63041D3D"
)
UUID = "123e4567-e12b-12d1-a456-426655440000"
REQUEST = {"key": UUID, "merchant_name": "Fulano de Tal", "merchant_city": "BRASILIA"}

CHILD = r"""
import ctypes, json, os, re, resource, sys, threading
lib = ctypes.CDLL(sys.argv[1])
execute, free = lib.allascode_action_execute, lib.allascode_action_free
execute.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
free.argtypes, free.restype = [ctypes.c_void_p, ctypes.c_size_t], None

def status(name):
    return re.search(name + r":\s*(\w+)", open("/proc/self/status").read())[1]

def run(payload, keep, null):
    raw = bytes.fromhex(payload)
    out, size = ctypes.c_void_p(1), ctypes.c_size_t(1)
    args = [raw, len(raw), ctypes.byref(out), ctypes.byref(size)]
    if null is not None:
        args[null] = None
    code = execute(*args)
    if code:
        return code, None if null or (out.value, size.value) == (None, 0) else "left behind"
    text = ctypes.string_at(out.value, size.value).decode()
    keep or free(out.value, size.value)
    return code, text

def traces():
    return sorted(os.listdir("/proc/self/fd")), status("SigCgt"), status("SigIgn"), status("SigBlk"), status("Threads")

def serve():
    limit = int(status("VmSize")) * 1024 + (8 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = traces()
    for line in sys.stdin:
        print(json.dumps([*run(*json.loads(line)), traces() == before]), flush=True)

threading.stack_size(128 << 10)
thread = threading.Thread(target=serve)
thread.start()
thread.join()
"""


@pytest.fixture(scope="module")
def module() -> Path:
    spec = importlib.util.spec_from_file_location("pix_build", PIX / "build.py")
    assert spec is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)  # type: ignore[union-attr]
    try:
        return Path(build.build())
    except SystemExit as fault:
        if str(fault) != build.MISSING:
            raise
        pytest.skip(str(fault))


@contextmanager
def child(module: Path) -> Iterator[Ask]:
    command = [sys.executable, "-I", "-c", CHILD, str(module)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        lines, answers = process.stdin, process.stdout
        assert lines is not None
        assert answers is not None

        def ask(payload: object, keep: bool = False, null: int | None = None) -> tuple[str, str | None]:
            raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            print(json.dumps([raw.hex(), keep, null]), file=lines, flush=True)
            answer = answers.readline()
            assert answer, f"the child ended with {process.wait()}"
            code, text, clean = json.loads(answer)
            assert clean, "the call left a descriptor, a signal handler or a thread"
            return CODES[code], text

        yield ask
        lines.close()


@pytest.fixture(scope="module")
def ask(module: Path) -> Iterator[Ask]:
    with child(module) as ask:
        yield ask


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE as it is defined: the remainder of a long division by x^16 + x^12 + x^5 + 1."""
    width = 8 * len(data) + 16
    dividend = (int.from_bytes(data) << 16) ^ (0xFFFF << width - 16)
    for bit in range(width - 1, 15, -1):
        if dividend >> bit & 1:
            dividend ^= 0x11021 << bit - 16
    return dividend


def tlv(text: str) -> list[tuple[str, str]]:
    fields = []
    while text:
        size = int(text[2:4])
        assert len(text) >= 4 + size
        fields.append((text[:2], text[4 : 4 + size]))
        text = text[4 + size :]
    return fields


def expected(request: dict[str, str]) -> list[tuple[str, object]]:
    account = [("00", "br.gov.bcb.pix"), ("01", request["key"])]
    account += [("02", request["description"])] if "description" in request else []
    return [
        *(("00", "01"), ("26", account), ("52", "0000"), ("53", "986")),
        *([("54", request["amount"])] if "amount" in request else []),
        *(("58", "BR"), ("59", request["merchant_name"]), ("60", request["merchant_city"])),
        ("62", [("05", request.get("txid", "***"))]),
    ]


def read(code: str) -> list[tuple[str, object]]:
    *fields, (last, crc) = tlv(code)
    assert last == "63"
    assert crc == f"{crc16(code[:-4].encode()):04X}"
    return [(name, tlv(value) if name in {"26", "62"} else value) for name, value in fields]


@given(st.binary(min_size=2, max_size=300))
def test_the_reference_crc_is_ccitt_false(data: bytes) -> None:
    assert crc16(b"123456789") == 0x29B1
    assert crc16(data) == binascii.crc_hqx(data, 0xFFFF)
    assert crc16(MANUAL[:-4].encode()) == 0x1D3D


def test_the_manuals_static_example(ask: Ask) -> None:
    assert ask(REQUEST) == ("ok", MANUAL)
    assert ask(REQUEST | {"amount": None, "txid": "***", "description": None}) == ("ok", MANUAL)
    escaped = ("".join(f"\\u{ord(char):04x}" for char in text) for text in REQUEST.values())
    members = ",".join(f'"{name}":"{text}"' for name, text in zip(REQUEST, escaped, strict=True))
    assert ask(f"{{{members}}}".encode()) == ("ok", MANUAL)


def test_the_payload_of_the_example(ask: Ask) -> None:
    payload = (PIX / "payload.json").read_bytes()
    code, text = ask(payload)
    assert (code, read(text or "")) == ("ok", expected(json.loads(payload)))


def printable(longest: int) -> st.SearchStrategy[str]:
    text = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=longest)
    return text.filter(lambda text: text.strip(" ") == text)


KEYS = st.sampled_from([UUID, "12345678909", "12ABC34501DE35", "+5561912345678", "ana.b+pix@loja.example.com.br"])
REQUESTS = st.fixed_dictionaries(
    {"key": KEYS, "merchant_name": printable(25), "merchant_city": printable(15)},
    optional={
        "amount": st.decimals("0.01", "9999999999.99", places=2).map(str),
        "txid": st.from_regex(r"[A-Za-z0-9]{1,25}", fullmatch=True),
        "description": printable(37),
    },
)


@given(request=REQUESTS)
@settings(max_examples=300, deadline=None)
def test_a_valid_request_reads_back(ask: Ask, request: dict[str, str]) -> None:
    code, text = ask(request)
    assert (code, read(text or "")) == ("ok", expected(request))


@given(cut=st.integers(0, 200), patch=st.binary(max_size=6))
@settings(max_examples=300, deadline=None)
def test_a_damaged_payload_is_a_fault_or_a_true_code(ask: Ask, cut: int, patch: bytes) -> None:
    raw = json.dumps(REQUEST | {"amount": "12.34", "txid": "ABC"}).encode()
    code, text = ask(raw[:cut] + patch + raw[cut + len(patch) :])
    assert (code == "ok") == (text is not None)
    assert not text or read(text)


LONG_KEY = "a" * 66 + "@example.br"  # The longest that the DICT keeps, 77, and it fills the account field to 99.
LENGTHS = {
    "key": (["+12", LONG_KEY, "a@b"], ["", "+1", "a" + LONG_KEY]),
    "amount": (["0.01", "9999999999.99"], ["", ".01", "10000000000.00"]),
    "merchant_name": (["A", "N" * 25], ["", "N" * 26]),
    "merchant_city": (["A", "C" * 15], ["", "C" * 16]),
    "txid": (["A", "9" * 25, "***"], ["", "9" * 26]),
    "description": (["A", "D" * 37], [""]),
}
CHARACTERS = {
    "key": f"""1234567890 1234567890a 12ABC34501DE3X 12abc34501de35 5561912345678 +0561912345678 +55619123456781234
        a@ @b a@@b a@b@c a@-b a@b- a@b..c a@b. A@b.c a@{"b" * 64} {UUID.upper()} {UUID[:-1]}g
        {UUID.replace("-", "0")}""".split(),
    "amount": f"""0.00 00.10 012.34 1 1. 1.0 1.000 1,00 -1.00 +1.00 1e3 .50 1.5e 1_0.00 {chr(0x661)}.00""".split(),
    "merchant_name": ["Jos\u00e9", "a\nb", "a\0b", " a", "a ", "\x7f", "\U0001f600"],
    "merchant_city": ["S\u00e3o Paulo", "a\tb", " a", "a "],
    "txid": ["a-b", "a b", "**", "****", "***a", "\u00e1"],
    "description": ["caf\u00e9", " a", "a ", "a\r"],
}


@pytest.mark.parametrize("field", LENGTHS)
def test_lengths_and_characters(ask: Ask, field: str) -> None:
    good, bad = LENGTHS[field]
    for value in good:
        code, text = ask(REQUEST | {field: value})
        assert (value, code, read(text or "")) == (value, "ok", expected(REQUEST | {field: value}))
    for value in bad + CHARACTERS[field]:
        assert (value, ask(REQUEST | {field: value})) == (value, (f"invalid_{field}", None))


RAW = json.dumps(REQUEST).encode()
FAULTS: list[tuple[str, object]] = [
    ("payload_too_large", RAW + b" " * (4097 - len(RAW))),
    *(
        ("invalid_json", raw)
        for raw in (b"", b" ", b"{", RAW + b"x", RAW + RAW, b"\xef\xbb\xbf" + RAW, RAW[:-1] + b",}")
    ),
    *(("invalid_json", RAW.replace(b"Fulano", raw)) for raw in (b"\xff", b"\xc0\x80", b"\0", b"\\x", b"\\ud800")),
    *(("wrong_type", raw) for raw in (b"[]", b"null", b'"a"', b"12", b"[" * 4096)),
    *(("wrong_type", {**REQUEST, "key": value}) for value in (None, 12345678909, True, [49, 50], {"a": 1}, 1e9)),
    *(("wrong_type", {**REQUEST, "amount": number}) for number in (12.34, 12, False)),
    ("unknown_member", REQUEST | {"Amount": "1.00"}),
    ("duplicate_member", RAW[:-1] + b', "key": "a@b"}'),
    *(("missing_member", {k: v for k, v in REQUEST.items() if k != name}) for name in REQUEST),
    ("account_too_long", REQUEST | {"description": "D" * 38}),
    ("account_too_long", REQUEST | {"key": LONG_KEY, "description": "D"}),
]


def test_each_fault_has_its_code(ask: Ask) -> None:
    for code, payload in FAULTS:
        assert (payload, ask(payload)) == (payload, (code, None))
    assert ask(RAW + b" " * (4096 - len(RAW))) == ("ok", MANUAL)


def test_null_pointers_are_a_bad_call(ask: Ask) -> None:  # Input, output, its length.
    assert [ask(REQUEST, null=place) for place in (0, 2, 3)] == [("bad_call", None)] * 3


def test_freed_memory_comes_back_and_kept_memory_runs_out(module: Path) -> None:
    with child(module) as ask:
        assert {ask(REQUEST)[0] for _ in range(3000)} == {"ok"}  # 12 MiB, were a page lost each time.
        assert ("out_of_memory", None) in (ask(REQUEST, keep=True) for _ in range(3000))


def test_the_file_is_small_stripped_and_needs_no_library(module: Path) -> None:
    raw = module.read_bytes()
    assert len(raw) < 64 << 10
    assert not any(name in raw for name in (b".symtab", b".debug", b"libc.so", b"/proc", str(PIX).encode()))


def test_the_manifest_names_what_is_built(module: Path) -> None:
    manifest = yaml.safe_load((PIX / "action.yaml").read_text())
    assert PIX / manifest["runtime"]["module"] == module


def test_the_core_passes_its_own_tests(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="the Zig compiler is missing: pip install 'ziglang>=0.16'")
    command = [sys.executable, "-m", "ziglang", "test", str(PIX / "action.zig")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_zig_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    for source in (*PIX.glob("*.zig"), PIX / "build.py"):
        shutil.copy(source, tmp_path)
    command = [sys.executable, "-I", "-S", str(tmp_path / "build.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'ziglang>=0.16'" in done.stderr
