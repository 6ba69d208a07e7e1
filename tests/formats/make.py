"""`python -m tests.formats.make NAME`: makes the data folder of a format with the code that is installed.

NAME.tar.gz is the folder of a broker that was killed, with data in files and in the log; NAME.json is what it holds,
NAME.layout describes the records.
Made once, when a format is new, and never again: that an old folder is still read is what it proves.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage
from tests.formats.content import described, populate, populate_more
from tests.formats.layout import layout

HERE = Path(__file__).parent
_LEFT_OUT = ("LOG", "LOCK")  # and LOG.old…: of no use to a later start


def make(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        storage = RocksStorage(data)
        populate(storage)
        storage.close()
        storage = RocksStorage(data)
        populate_more(storage)
        storage.sync()
        with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as archive:  # before it is closed: as after a kill
            for path in sorted(data.iterdir()):
                if not path.name.startswith(_LEFT_OUT):
                    archive.add(path, path.name)
        storage.close()
    twin = MemoryStorage()
    populate(twin)
    populate_more(twin)
    (HERE / f"{name}.json").write_text(json.dumps(described(twin), indent=1) + "\n")
    (HERE / f"{name}.layout").write_text(layout())


if __name__ == "__main__":
    make(sys.argv[1])
