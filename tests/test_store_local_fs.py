"""The local store: objects appear whole or not at all, whatever happens while they are written."""

import contextlib
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hypaware_pipeline.errors import PreconditionFailed, SinkHalted, SinkRetryable
from hypaware_pipeline.plugins.contracts import BlobStore, IfAbsent, IfMatch
from hypaware_pipeline.sinks.stores.local_fs import STALE_TEMPORARY_SECONDS, LocalFsStore


@pytest.fixture
def store(tmp_path):
    return LocalFsStore(tmp_path / "root")


def put(store, key, content, **options):
    return store.put(key, lambda out: out.write(content), **options)


def content(store, key):
    with store.get(key) as blob:
        return None if blob is None else blob.body.read()


def keys(store, prefix=""):
    return [info.key for info in store.list(prefix)]


def etag(store, key):
    with store.get(key) as blob:
        return blob.etag


def hidden(root):
    return [path for path in root.rglob(".*") if path.name != ".lock"]


# --- putting, getting, listing, removing -------------------------------------------------------------------------------------


def test_it_is_a_blob_store(store):
    typed: BlobStore = store
    assert typed.uri("a") == store.uri("a")


def test_an_object_reads_back_and_put_returns_what_write_returned(store):
    def write(out):
        assert out.write(b"ab") == 2
        out.write(b"c")
        return "the answer"

    assert store.put("x/y/z.bin", write) == "the answer"
    with store.get("x/y/z.bin") as blob:
        assert (blob.body.read(), blob.size) == (b"abc", 3)


def test_an_absent_object_is_none_whatever_stands_in_its_place(store, tmp_path):
    assert content(store, "a/b") is None
    put(store, "a/b", b"1")
    os.mkfifo(tmp_path / "root" / "fifo")
    assert [content(store, key) for key in ("a", "a/b/c", "c", "fifo")] == [None] * 4


def test_a_replaced_or_removed_object_is_read_to_its_end_as_it_was(store):
    put(store, "k", b"old")
    with store.get("k") as blob:
        put(store, "k", b"new and longer")
        store.delete("k")
        assert (blob.body.read(), blob.size) == (b"old", 3)


def test_a_listing_is_sorted_by_key_and_stays_in_its_directory(store):
    for key in ("a/b/1", "a/b2/1", "a/b-/1", "a/b.x", "a/b", "z"):
        with contextlib.suppress(SinkHalted):
            put(store, key, key.encode())
    assert keys(store) == sorted(["a/b/1", "a/b2/1", "a/b-/1", "a/b.x", "z"])
    assert keys(store, "a/b") == ["a/b/1"]
    assert keys(store, "a/b.x") == []
    assert keys(store, "nothing/here") == []


def test_a_listing_tells_size_and_time(tmp_path):
    store = LocalFsStore(tmp_path, clock_ns=lambda: 1_780_000_000_123_456_789)
    put(store, "k", b"12345")
    (info,) = store.list("")
    assert (info.size, info.modified.isoformat()[:23]) == (5, "2026-05-28T20:26:40.123")


def test_a_listing_shows_neither_unfinished_objects_nor_links_nor_names_that_are_no_keys(store, tmp_path):
    put(store, "d/k", b"1")
    root = tmp_path / "root"
    for name in (".tmp-1", ".hidden", "back\\slash", "new\nline"):
        (root / "d" / name).write_bytes(b"x")
    Path(os.fsdecode(bytes(root / "d") + b"/\xff")).write_bytes(b"x")
    (root / "d" / "link").symlink_to(root / "d" / "k")
    (root / "round").symlink_to(root)
    assert keys(store) == ["d/k"]


def test_an_object_vanishing_under_a_listing_is_left_out(store):
    for name in "abc":
        put(store, f"d/{name}", b"1")
    listing = store.list("d")
    assert next(listing).key == "d/a"
    store.delete("d/b")
    assert [info.key for info in listing] == ["d/c"]


def test_removing_is_idempotent_and_leaves_directories(store, tmp_path):
    store.delete("never/there")
    put(store, "d/k", b"1")
    store.delete("d/k")
    store.delete("d/k")
    store.delete("d/k/below")
    assert content(store, "d/k") is None
    assert (tmp_path / "root" / "d").is_dir()


def test_a_url_is_percent_encoded(tmp_path):
    assert LocalFsStore(tmp_path / "a b").uri("day=1/é#?.x") == (tmp_path / "a b").as_uri() + "/day=1/%C3%A9%23%3F.x"


def test_a_file_has_the_mode_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        put(LocalFsStore(tmp_path), "k", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o640


# --- keys --------------------------------------------------------------------------------------------------------------------


HOSTILE_KEYS = [
    "", "/", "/abs/path.bin", "../escape.bin", "a/../b", "a/..", "..", ".", "a/./b", "a//b", "a/", "..x", ".hidden", "a/.tmp-1",
    "a\\b", "a\0b", "a\nb", "a\x7fb", "mixed/../../../escape.bin", "a/\ud800",
]  # fmt: skip


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_every_method_refuses_a_hostile_key(store, tmp_path, key):
    for call in (
        lambda: put(store, key, b"x"),
        lambda: content(store, key),
        lambda: store.delete(key),
        lambda: store.uri(key),
        lambda: keys(store, key or "/"),
    ):
        with pytest.raises(ValueError, match="object key"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_link_inside_that_leads_outside_is_refused(store, tmp_path):
    put(store, "k", b"1")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"s")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "loop").symlink_to("loop")
    for call in (lambda: put(store, "out/new", b"x"), lambda: content(store, "out/secret"), lambda: keys(store, "out")):
        with pytest.raises(ValueError, match="through a symbolic link"):
            call()
    with pytest.raises(SinkHalted):
        put(store, "loop/k", b"x")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_a_link_in_the_place_of_an_object_is_replaced_and_never_followed(store, tmp_path):
    put(store, "a", b"1")
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "root" / "k").symlink_to(tmp_path / "secret")
    assert content(store, "k") is None
    put(store, "k", b"mine")
    assert (content(store, "k"), (tmp_path / "secret").read_bytes()) == (b"mine", b"s")


def test_the_root_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    put(LocalFsStore(tmp_path / "link"), "d/k", b"1")
    assert (tmp_path / "real" / "d" / "k").read_bytes() == b"1"


# --- failures ----------------------------------------------------------------------------------------------------------------


def test_a_write_that_raises_leaves_the_old_object_and_nothing_else(store, tmp_path):
    put(store, "d/k", b"old")

    def write(out):
        out.write(b"half of the new")
        raise FileNotFoundError("a cache file, not ours to interpret")

    with pytest.raises(FileNotFoundError):
        store.put("d/k", write)
    assert (content(store, "d/k"), hidden(tmp_path)) == (b"old", [])


def run_full(tmp_path, prepare):
    """Put an object larger than what `prepare` leaves room for, in a process of its own."""
    code = f"""
import sys
from pathlib import Path
from hypaware_pipeline.errors import SinkRetryable
from hypaware_pipeline.sinks.stores.local_fs import LocalFsStore
store = LocalFsStore(Path(sys.argv[1]))
store.put("d/k", lambda out: out.write(b"old"))
{prepare}
try:
    store.put("d/k", lambda out: [out.write(bytes(65536)) for _ in range(64)])
except SinkRetryable as answer:
    print(answer)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (tmp_path / "d" / "k").read_bytes() == b"old"
    assert hidden(tmp_path) == []
    return done.stdout


def test_a_write_past_a_size_limit_is_tried_again_later(tmp_path):
    # What any user can bring about: the system refuses to let the file grow.
    said = run_full(tmp_path, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))")
    assert str(tmp_path / "d" / "k") in said
    assert "after 1048576 bytes" in said


@contextlib.contextmanager
def mounted(directory, *, options, remount_read_only=False):
    """A small file system of our own; yields False where mounting is not allowed."""
    libc = ctypes.CDLL(None)
    if libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, options.encode()) != 0:
        yield False
        return
    try:
        yield True
    finally:
        assert libc.umount2(os.fsencode(directory), 2) == 0


def test_a_full_disk_leaves_the_old_object(tmp_path):
    with mounted(tmp_path, options="size=1m") as is_small:
        limit = "" if is_small else "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))"
        said = run_full(tmp_path, limit)
    assert "free some space" in said
    assert ("No space left" in said) is is_small


def test_a_read_only_disk_halts_with_a_remedy(tmp_path):
    with mounted(tmp_path, options="size=1m") as is_mounted:
        store = LocalFsStore(tmp_path)
        put(store, "d/k", b"old")
        if is_mounted:
            read_only_remount = 1 | 32
            assert ctypes.CDLL(None).mount(b"tmpfs", os.fsencode(tmp_path), b"tmpfs", read_only_remount, b"") == 0
        else:
            (tmp_path / "d").chmod(0o555)
        for call in (lambda: put(store, "d/k", b"new"), lambda: put(store, "d/n", b"new"), lambda: store.delete("d/k")):
            with pytest.raises(SinkHalted, match=r"mount it writable|access"):
                call()
        assert content(store, "d/k") == b"old"
        (tmp_path / "d").chmod(0o755) if not is_mounted else None


def test_a_file_in_the_place_of_a_directory_halts(store, tmp_path):
    put(store, "a", b"1")
    with pytest.raises(SinkHalted, match="a file stands where a directory is needed"):
        put(store, "a/b", b"2")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkHalted, match="a file stands where a directory is needed"):
        put(LocalFsStore(tmp_path / "file"), "k", b"2")


def test_a_directory_in_the_place_of_an_object_halts(store, tmp_path):
    put(store, "a/b", b"1")
    with pytest.raises(SinkHalted, match="a directory stands where the object belongs"):
        put(store, "a", b"2")
    assert hidden(tmp_path) == []


def test_a_name_too_long_halts(store):
    with pytest.raises(SinkHalted, match="shorter"):
        put(store, "n" * 300, b"1")


def test_a_root_removed_while_an_object_is_written_is_tried_again_later(tmp_path):
    store = LocalFsStore(tmp_path / "root")

    def write(out):
        for path in sorted((tmp_path / "root").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (tmp_path / "root").rmdir()

    with pytest.raises(SinkRetryable, match="k"):
        store.put("d/k", write)


# --- other writers -----------------------------------------------------------------------------------------------------------

HALF_WRITTEN = """
import sys
from pathlib import Path
from hypaware_pipeline.sinks.stores.local_fs import LocalFsStore
def write(out):
    out.write(b"half")
    print("writing", flush=True)
    sys.stdin.read()
LocalFsStore(Path(sys.argv[1])).put("d/k", write)
"""


def test_a_killed_writer_leaves_the_old_object_and_its_remains_go_after_a_day(tmp_path):
    store = LocalFsStore(tmp_path)
    put(store, "d/k", b"old")
    with subprocess.Popen(
        [sys.executable, "-c", HALF_WRITTEN, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
    assert (content(store, "d/k"), keys(store)) == (b"old", ["d/k"])
    (remains,) = hidden(tmp_path)
    assert remains.suffix == ""

    put(store, "d/k", b"new")
    assert hidden(tmp_path) == [remains]
    later_ns = time.time_ns() + (STALE_TEMPORARY_SECONDS + 60) * 1_000_000_000
    put(LocalFsStore(tmp_path, clock_ns=lambda: later_ns), "d/k", b"newer")
    assert (content(store, "d/k"), hidden(tmp_path)) == (b"newer", [])


STARTED_TOGETHER = """
import contextlib, json, sys
from pathlib import Path
from hypaware_pipeline.errors import PreconditionFailed
from hypaware_pipeline.plugins.contracts import IfAbsent, IfMatch
from hypaware_pipeline.sinks.stores.local_fs import LocalFsStore
store, number = LocalFsStore(Path(sys.argv[1])), sys.argv[2].encode()
print("ready", flush=True)
sys.stdin.readline()
"""

CREATE_MANY = """
won = []
for index in range(30):
    with contextlib.suppress(PreconditionFailed):
        store.put(f"d/{index}", lambda out: out.write(number), condition=IfAbsent())
        won.append(index)
print(json.dumps(won))
"""

COUNT_UP = """
done = 0
while done < 10:
    with store.get("counter") as blob:
        seen, condition = int(blob.body.read()), IfMatch(blob.etag)
    with contextlib.suppress(PreconditionFailed):
        store.put("counter", lambda out: out.write(b"%06d" % (seen + 1)), condition=condition)
        done += 1
print(json.dumps(done))
"""


def race(code, root, *, processes=6):
    """Run `code` in several processes that start at the same moment; returns what each answered."""
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", STARTED_TOGETHER + code, str(root), str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(processes)
        ]
        assert [process.stdout.readline() for process in running] == ["ready\n"] * processes
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=60)[0]) for process in running]


def test_of_many_creators_exactly_one_wins_each_object(tmp_path):
    won = race(CREATE_MANY, tmp_path)
    assert sorted(index for indexes in won for index in indexes) == list(range(30))
    store = LocalFsStore(tmp_path)
    assert all(content(store, f"d/{index}") == b"%d" % number for number, indexes in enumerate(won) for index in indexes)
    assert hidden(tmp_path) == []


def test_concurrent_compare_and_swap_loses_no_update(tmp_path):
    # Same size every time: only the time and the inode tell the versions apart.
    put(LocalFsStore(tmp_path), "counter", b"%06d" % 0)
    assert race(COUNT_UP, tmp_path) == [10] * 6
    assert content(LocalFsStore(tmp_path), "counter") == b"%06d" % 60


def test_a_failed_condition_writes_nothing(store, tmp_path):
    put(store, "k", b"old")
    old = etag(store, "k")
    put(store, "k", b"new")
    for condition in (IfAbsent(), IfMatch(old)):
        with pytest.raises(PreconditionFailed, match="object 'k'"):
            put(store, "k", b"mine", condition=condition)
    with pytest.raises(PreconditionFailed):
        put(store, "absent", b"mine", condition=IfMatch(old))
    assert (content(store, "k"), content(store, "absent"), hidden(tmp_path)) == (b"new", None, [])
    put(store, "k", b"mine", condition=IfMatch(etag(store, "k")))
    assert content(store, "k") == b"mine"


def test_on_a_disk_without_hard_links_creating_still_never_overwrites(store, monkeypatch):
    def refuse(self, target):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    put(store, "k", b"first", condition=IfAbsent())
    with pytest.raises(PreconditionFailed):
        put(store, "k", b"second", condition=IfAbsent())
    assert content(store, "k") == b"first"


def test_readers_see_old_or_new_but_never_a_part(store):
    versions = [bytes([number]) * (100_000 + number) for number in range(40)]
    put(store, "k", versions[0])
    seen = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            seen.append(content(store, "k"))

    reader = threading.Thread(target=read)
    reader.start()
    for version in versions:
        put(store, "k", version)
    stop.set()
    reader.join()
    assert seen
    assert set(seen) <= set(versions)
