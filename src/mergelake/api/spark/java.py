"""Finding a Java runtime for Spark, and a class archive that makes its start three times faster.

Spark 4 needs Java 17 or newer: `JAVA_HOME`, or `java` on the PATH.

Starting Spark, a JVM spends most of the time on loading classes. Java's application class-data sharing stores them in
an archive: the first session that ends cleanly writes it, later ones map it. The archive is specific to the JVM and
the jars, which its file name includes; a JVM that cannot use it ignores it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from mergelake.core.base.errors import UnavailableError
from mergelake.core.jit.private import private_directory, private_file


def java_binary() -> str:
    """Path of the `java` that Spark will start. Raises UnavailableError if there is none."""
    home = os.environ.get("JAVA_HOME")
    binary = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if binary is None:
        raise UnavailableError(
            "Spark needs Java 17 or newer and there is none here",
            hint="apt-get install openjdk-17-jre-headless, or set JAVA_HOME",
        )
    return binary


def class_archive() -> Path | None:
    """Path of the class archive for this JVM and Spark, which may not exist yet.

    None if another user could write there.
    """
    import pyspark

    java = java_binary()
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    jars = Path(pyspark.__file__).parent / "jars"
    identity = hashlib.sha256(f"{version}{Path(java).resolve()}{jars}{pyspark.__version__}".encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mergelake"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    if not private_directory(base):
        return None
    return base / f"spark-{identity}.jsa"


def archive_option() -> str:
    """The JVM option that uses or writes the class archive; empty if there is none."""
    archive = class_archive()
    if archive is None:
        return ""
    if private_file(archive):
        return f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    if archive.is_symlink() or archive.exists():  # not private: another user could have written it
        with suppress(OSError):
            archive.unlink()
        if archive.exists():
            return ""
    if shutil.disk_usage(archive.parent).free < 2 << 30:
        return ""
    return f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
