"""Packages of plugins, installed for a test."""

from pathlib import Path


class Packages:
    """A directory of installed packages; whoever is to see them has it on `sys.path`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def install(self, module: str, code: str, **plugins: str) -> None:
        """A package with one module; `plugins` are names of its plugins without `@acme/`, and where they are."""
        (self.root / f"{module}.py").write_text(code)
        info = self.root / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"@acme/{name} = {place}" for name, place in plugins.items()]
        (info / "entry_points.txt").write_text("\n".join(["[hypaware_pipeline.plugins]", *lines, ""]))
