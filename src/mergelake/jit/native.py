"""LLVM: from intermediate language to an address that can be called, by way of a cache of object code.

A file of the cache is named after the kernel and a digest of all that its code depends on: what the kernel and its
helpers do, this compiler, LLVM, and the processor. So nothing in it is ever out of date, and processes that share it
agree. It begins with a digest of its content: what was cut short or changed is compiled anew. Files appear whole, by a
rename; a directory that cannot be written is done without.

The cache lies in `__pycache__` beside this module, or in the user's cache directory if that cannot be written. What
anybody but this user could have written is not used (`private`).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from mergelake.jit.private import private_directory, read_private

_DIGEST = 16
_lock = threading.Lock()


class _Processor:
    """LLVM, set up for the processor at hand."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        options = {"reloc": "static"} if target.name.startswith("x86") else {}
        self.machine = target.create_target_machine(
            cpu=cpu, features=features, opt=3, codemodel="jitdefault", **options
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
        compiler = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
        self.salt = f"{llvmlite.__version__} {cpu} {features} ".encode() + blake2b(compiler).digest()

    def compile(self, module: str) -> bytes:
        """Object code."""
        parsed = llvm.parse_assembly(module)
        parsed.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(parsed, builder)
        return bytes(self.machine.emit_object(parsed))


_processor: _Processor | None = None


def load(name: str, meaning: bytes, build: Callable[[str], tuple[Any, str]]) -> tuple[int, str]:
    """The address of a kernel and the kinds of its results; `build(symbol)` makes its module if the cache lacks it.

    `meaning` stands for all of its source.
    """
    global _processor
    with _lock:
        processor = _processor = _processor or _Processor()
        key = blake2b(processor.salt + meaning, digest_size=_DIGEST).hexdigest()
        symbol = f"{name}_{key}"
        found = _read(f"{symbol}.o")
        if found is None:
            module, results = build(symbol)
            module.triple = llvm.get_default_triple()
            module.data_layout = str(processor.machine.target_data)
            found = results.encode().ljust(8) + processor.compile(str(module))
            _write(f"{symbol}.o", found)
        processor.engine.add_object_file(llvm.ObjectFileRef.from_data(found[8:]))
        processor.engine.finalize_object()
        return processor.engine.get_function_address(symbol), found[:8].decode().strip()


def _places() -> Iterator[Path]:
    yield Path(__file__).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (a home may be missing)
    if Path(home).is_absolute():
        yield Path(home) / "mergelake"


def _read(file: str) -> bytes | None:
    for place in _places():
        try:
            data = read_private(place / file)
        except OSError:
            continue
        if blake2b(data[_DIGEST:], digest_size=_DIGEST).digest() == data[:_DIGEST]:
            return data[_DIGEST:]
    return None


def _write(file: str, data: bytes) -> None:
    whole = blake2b(data, digest_size=_DIGEST).digest() + data
    for place in _places():
        temporary = ""
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not private_directory(place):
                continue
            handle, temporary = tempfile.mkstemp(dir=place, prefix=file)
            with os.fdopen(handle, "wb") as out:
                out.write(whole)
            Path(temporary).replace(place / file)
        except OSError:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            continue
        return
