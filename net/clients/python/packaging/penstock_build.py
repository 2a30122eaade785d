"""Builds the wheel and the source archive: pure Python, no dependency, no network."""

import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

HOME = pathlib.Path(__file__).resolve().parent.parent
#: A fixed time, so that the same sources give the same bytes.
TIME = (2026, 1, 1, 0, 0, 0)


def _project():
    text = (HOME / "pyproject.toml").read_text()
    return {name: re.search(rf'^{name} = "(.*)"$', text, re.M)[1]
            for name in ("name", "version", "description", "requires-python")}


def _metadata():
    project = _project()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", "License: Apache-2.0 OR MIT",
             f"Requires-Python: {project['requires-python']}",
             "Description-Content-Type: text/markdown", "", (HOME / "README.md").read_text()]
    return "\n".join(lines)


def _sources():
    folder = HOME / "penstock"
    return sorted([*folder.glob("*.py"), folder / "py.typed"])


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    project = _project()
    stem = f"{project['name']}-{project['version']}"
    files = {f"penstock/{path.name}": path.read_bytes() for path in _sources()}
    files[f"{stem}.dist-info/METADATA"] = _metadata().encode()
    files[f"{stem}.dist-info/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: penstock\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    record = []
    name = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record.append(f"{path},sha256={digest},{len(data)}")
            wheel.writestr(zipfile.ZipInfo(path, TIME), data, zipfile.ZIP_DEFLATED)
        listing = f"{stem}.dist-info/RECORD"
        text = "\n".join([*record, f"{listing},,", ""])
        wheel.writestr(zipfile.ZipInfo(listing, TIME), text)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517."""
    project = _project()
    stem = f"{project['name']}-{project['version']}"
    name = f"{stem}.tar.gz"
    others = [HOME / "pyproject.toml", HOME / "README.md", pathlib.Path(__file__).resolve()]
    with tarfile.open(pathlib.Path(sdist_directory) / name, "w:gz") as archive:
        for path in [*_sources(), *others]:
            archive.add(path, f"{stem}/{path.relative_to(HOME)}")
        metadata = _metadata().encode()
        entry = tarfile.TarInfo(f"{stem}/PKG-INFO")
        entry.size = len(metadata)
        archive.addfile(entry, io.BytesIO(metadata))
    return name
