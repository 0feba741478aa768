"""LLVM: compilation of the intermediate representation, with a cache of object code on disk.

The name of a cache file is the kernel's name and a digest of everything that its code depends on: the code of the
kernel and its helpers, this compiler, LLVM, and the processor. So files never become stale and processes can share
them. A file begins with a digest of its content, so that damaged files are compiled anew. Files are written atomically,
by a rename; without a writable directory nothing is cached.

The cache is in `__pycache__` beside this module, or in the user's cache directory if that is not writable. Files that
another user could have written are not used (`private`).
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

from mergelake.core.jit.private import private_directory, read_private

_DIGEST = 16
_lock = threading.Lock()


class _Processor:
    """LLVM, initialised for the current processor."""

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
        """Compile a module to object code."""
        parsed = llvm.parse_assembly(module)
        parsed.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(parsed, builder)
        return bytes(self.machine.emit_object(parsed))


_processor: _Processor | None = None


def load(name: str, meaning: bytes, build: Callable[[str], tuple[Any, str]]) -> tuple[int, str]:
    """The address of a kernel and the kinds of its results; `build(symbol)` makes its module if it is not cached.

    `meaning` is a digest of the kernel's code.
    """
    global _processor
    with _lock:
        processor = _processor = _processor or _Processor()
        key = blake2b(processor.salt + meaning, digest_size=_DIGEST).hexdigest()
        symbol = f"{name}_{key}"
        compiled = _read(f"{symbol}.o")
        if compiled is None:
            module, results = build(symbol)
            module.triple = llvm.get_default_triple()
            module.data_layout = str(processor.machine.target_data)
            compiled = results.encode().ljust(8) + processor.compile(str(module))
            _write(f"{symbol}.o", compiled)
        processor.engine.add_object_file(llvm.ObjectFileRef.from_data(compiled[8:]))
        processor.engine.finalize_object()
        return processor.engine.get_function_address(symbol), compiled[:8].decode().strip()


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
