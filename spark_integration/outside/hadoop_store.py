"""A table's folder in a store that Spark reaches: HDFS, S3, Google Cloud Storage or Azure, by Hadoop's file systems.

The driver calls Hadoop through py4j. Of two drivers that create a file of the same name, one succeeds, and readers see
the file as a whole:

- `s3a` and `gs` create an object when it is closed, on the condition that there is none. S3A needs Hadoop 3.4.2 or
  newer for this, and a server that knows `If-None-Match`.
- `hdfs`, `viewfs`, `abfs` and `abfss` write a file under another name, and rename it, which fails if the name exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .failures import OutsideError
from .parquet_commits import COMMITS, parse_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENAMING: Final = ("hdfs", "viewfs", "abfs", "abfss")
CONDITIONAL: Final = ("s3a", "gs")
S3A_CONDITION: Final = "fs.option.create.conditional.overwrite"
"""Option of S3A's builder of files (HADOOP-19256): the object is created only if there is none."""
_EXISTS: Final = frozenset(
    {
        "org.apache.hadoop.fs.FileAlreadyExistsException",
        "org.apache.hadoop.fs.s3a.RemoteFileChangedException",
        "java.nio.file.FileAlreadyExistsException",
    }
)
"""Exceptions of a creation or rename onto a name that exists."""


def is_in_store(path: str) -> bool:
    """Return whether a path is a URI of a file system other than this machine's."""
    return "://" in path and urlsplit(path).scheme != "file"


def check_place(path: str) -> None:
    """Check that the path is in a store of a known kind. Raises ValueError with the schemes that are allowed."""
    parts = urlsplit(path)
    if parts.scheme not in (*RENAMING, *CONDITIONAL):
        raise ValueError(
            f"{path!r} has the scheme {parts.scheme!r}: a table of files is at a path or file:// of a mounted file "
            f"system, or at {', '.join(f'{scheme}://' for scheme in (*CONDITIONAL, *RENAMING))}, whose files can be "
            "created without replacing others"
        )
    if not parts.path.strip("/"):
        raise ValueError(f"{path!r} names no folder")


class HadoopStore:
    """The folder of a table. Paths are relative to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Raises OutsideError if Hadoop has no file system for the path, or cannot reach it."""
        check_place(path)
        self.path = path.rstrip("/")
        jvm = spark._jvm
        assert jvm is not None
        self._hadoop = jvm.org.apache.hadoop
        self._renames = urlsplit(path).scheme in RENAMING
        self._is_s3a = urlsplit(path).scheme == "s3a"
        with self._calls():
            conf = spark._jsparkSession.sessionState().newHadoopConf()
            root = self._at("")
            self._files = root.getFileSystem(conf)
            if self._renames:
                self._context = self._hadoop.fs.FileContext.getFileContext(root.toUri(), conf)
                gateway = spark.sparkContext._gateway
                assert gateway is not None
                self._without_overwriting = gateway.new_array(getattr(self._hadoop.fs, "Options$Rename"), 0)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        try:
            with self._calls():
                return [status.getPath().getName() for status in self._files.listStatus(self._at(folder))]
        except FileNotFoundError:
            return []

    def data_files(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield the path and the bytes of each Parquet file below a folder."""
        with self._calls():
            # A folder without files is no folder in an object store.
            if not self._files.exists(self._at(folder)):
                return
            found = self._files.listFiles(self._at(folder), True)
            base = f"{self._files.makeQualified(self._at('')).toString().rstrip('/')}/"
            while found.hasNext():
                status = found.next()
                path = status.getPath()
                if path.getName().endswith(".parquet") and "/_temporary/" not in path.toString():
                    yield path.toString().removeprefix(base), status.getLen()

    def read(self, path: str) -> dict[str, Any]:
        """Read a JSON file. Raises FileNotFoundError, and OutsideError for a file of another kind or format."""
        with self._calls():
            stream = self._files.open(self._at(path))
            try:
                content = bytes(stream.readAllBytes())
            finally:
                stream.close()
        return parse_json(content, f"{self.path}/{path}")

    def create(self, path: str, text: str, aside: str) -> bool:
        """Create a file as a whole. Returns False if a file of this name exists.

        A store that renames files first writes the text to `aside`.
        """
        try:
            with self._calls():
                if self._renames:
                    self._rename_in(path, text, aside)
                else:
                    self._create_conditionally(path, text)
        except FileExistsError:
            return False
        return True

    def remove(self, path: str) -> None:
        """Delete a file or a folder with its content, if it is there."""
        with self._calls():
            self._files.delete(self._at(path), True)

    def _rename_in(self, path: str, text: str, aside: str) -> None:
        stream = self._files.create(self._at(aside), True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        self._files.mkdirs(self._at(path).getParent())
        self._context.rename(self._at(aside), self._at(path), self._without_overwriting)

    def _create_conditionally(self, path: str, text: str) -> None:
        builder = self._files.createFile(self._at(path)).overwrite(False).recursive()
        if self._is_s3a:
            builder = builder.must(S3A_CONDITION, "true")
        stream = builder.build()
        stream.write(text.encode())
        stream.close()  # creates the object

    def _at(self, path: str) -> Any:
        return self._hadoop.fs.Path(f"{self.path}/{path}" if path else self.path)

    @contextmanager
    def _calls(self) -> Iterator[None]:
        """Return a context manager that raises Java's exceptions as FileNotFoundError, FileExistsError or
        OutsideError.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.errors.exceptions.captured import CapturedException

        try:
            yield
        except Py4JJavaError as error:
            java = error.java_exception
            name, message = java.getClass().getName(), f"{self.path}: {java.getMessage()}"
            if name == "java.io.FileNotFoundException":
                raise FileNotFoundError(message) from error
            if name in _EXISTS:
                raise FileExistsError(message) from error
            raise OutsideError(f"{message} ({name.rpartition('.')[2]})") from error
        except CapturedException as error:
            raise OutsideError(f"{self.path}: {error}") from error


class StoredCommits:
    """The commits of a query in a store: the folder of a `CommitLog`."""

    def __init__(self, store: HadoopStore, query: str) -> None:
        self._store = store
        self._folder = f"{COMMITS}/{query}"

    def names(self) -> list[str]:
        """Return the names of all files; none if there is no folder."""
        return self._store.names(self._folder)

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file. Raises FileNotFoundError and OutsideError."""
        return self._store.read(f"{self._folder}/{name}")

    def publish(self, name: str, text: str, written: Path | str) -> bool:
        """Create the file. Returns False if it exists."""
        return self._store.create(f"{self._folder}/{name}", text, str(written))

    def summarize(self, name: str, text: str, written: Path | str) -> None:
        """Create a summary, unless another run has created it."""
        self._store.create(f"{self._folder}/{name}", text, str(written))

    def remove(self, name: str) -> None:
        """Delete a file, or do nothing if there is no such file."""
        self._store.remove(f"{self._folder}/{name}")
