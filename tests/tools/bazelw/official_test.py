import hashlib
import http.server
import socket
import threading
import time
import unittest
from typing import ClassVar
from unittest import mock

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import official
from tools.bazelw.errors import WayFailed

CONTENT = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT under any name, with ranges, like release hosts."""

    # How many bytes an answer contains before the connection breaks.
    breaks_after = len(CONTENT)
    ranges = True
    length: "str | None" = None
    asked: ClassVar["list[str | None]"] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted[len("bytes=") : -1]) if wanted and self.ranges else 0
        if self.path == "/missing":
            self.send_error(404)
            return
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", self.length or str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : start + self.breaks_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


class OfficialTest(ScratchTest):
    def setUp(self) -> None:
        super().setUp()

        class Served(Handler):
            asked: ClassVar["list[str | None]"] = []

        self.handler = Served
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.address = f"http://127.0.0.1:{server.server_address[1]}/bazel"
        self.target = self.folder / "official" / "bazel-1-linux"
        self.part = self.folder / "official" / "bazel-1-linux.part"

    def test_whole_file(self) -> None:
        """Protects the simple case: the file is there, executable, and reported with its size."""
        self.assertEqual(official.fetch(self.address, self.target, DIGEST, self.progress), len(CONTENT))
        self.assertEqual(self.target.read_bytes(), CONTENT)
        self.assertTrue(self.target.stat().st_mode & 0o100)
        self.assertFalse(self.part.exists())

    def test_wrong_hash_is_refused_and_nothing_left(self) -> None:
        """Protects against running a file other than the pinned one."""
        with self.assertRaisesRegex(WayFailed, "doesn't match the pinned SHA-256"):
            official.fetch(self.address, self.target, "0" * 64, self.progress)
        self.assertEqual(list(self.target.parent.iterdir()), [])

    def test_interrupted_download_is_resumed(self) -> None:
        """Protects what an interrupted call downloaded: only the rest is requested."""
        self.part.parent.mkdir()
        self.part.write_bytes(CONTENT[:1000])
        official.fetch(self.address, self.target, DIGEST, self.progress)
        self.assertEqual(self.target.read_bytes(), CONTENT)
        self.assertEqual(self.handler.asked, ["bytes=1000-"])

    def test_complete_part_is_not_downloaded_again(self) -> None:
        """Protects a download that was interrupted between its last byte and its check."""
        self.part.parent.mkdir()
        self.part.write_bytes(CONTENT)
        official.fetch(self.address, self.target, DIGEST, self.progress)
        self.assertEqual(self.target.read_bytes(), CONTENT)

    def test_host_without_ranges(self) -> None:
        """Protects against appending a whole file to the existing part."""
        self.handler.ranges = False
        self.part.parent.mkdir()
        self.part.write_bytes(CONTENT[:1000])
        official.fetch(self.address, self.target, DIGEST, self.progress)
        self.assertEqual(self.target.read_bytes(), CONTENT)

    def test_broken_connection_is_resumed(self) -> None:
        """Protects users of an unreliable network. Retries are bounded, and what arrived is kept for the next call."""
        self.handler.breaks_after = len(CONTENT) // 2 + 1
        official.fetch(self.address, self.target, DIGEST, self.progress)
        self.assertEqual(self.target.read_bytes(), CONTENT)
        self.target.unlink()
        self.handler.breaks_after = 1000
        with self.assertRaisesRegex(WayFailed, "the next call resumes it"):
            official.fetch(self.address, self.target, DIGEST, self.progress)
        self.assertGreaterEqual(self.part.stat().st_size, 1000)

    def test_answer_with_a_damaged_length(self) -> None:
        """Protects users behind a proxy that corrupts headers: the file's digest decides, not its announced length."""
        self.handler.length = "many"
        official.fetch(self.address, self.target, DIGEST, self.progress)
        self.assertEqual(self.target.read_bytes(), CONTENT)

    def test_absent_or_refusing_host_is_unreachable(self) -> None:
        """Protects the fallback to Debian if the host refuses."""
        with self.assertRaisesRegex(official.Unreachable, "404"):
            official.fetch(self.address.replace("/bazel", "/missing"), self.target, DIGEST, self.progress)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{unused.getsockname()[1]}/"
            with self.assertRaisesRegex(official.Unreachable, "can't be reached"):
                official.fetch(address, self.target, DIGEST, self.progress)

    def test_silent_host_is_recognised_in_seconds(self) -> None:
        """Protects against waiting for a host that a firewall silently drops."""
        with socket.socket() as silent, mock.patch.object(official, "ANSWER_TIMEOUT", 0.2):
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            started = time.monotonic()
            with self.assertRaisesRegex(official.Unreachable, "the host didn't answer within"):
                official.fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/", self.target, DIGEST, self.progress)
            self.assertLess(time.monotonic() - started, 5)

    def test_blocked_host_is_remembered_for_a_day(self) -> None:
        """Protects later calls from retrying a blocked host, and a day later from never trying it again."""
        blocked = mock.Mock(side_effect=official.Unreachable("the host didn't answer"))
        with mock.patch.object(official, "fetch", blocked), mock.patch.object(official, "_name", lambda _: NAME):
            for remembered in ("", r" \(found less than a day ago; remove .*/blocked.json to try again\)"):
                with self.assertRaisesRegex(WayFailed, f"the host didn't answer{remembered}$"):
                    official.set_up(self.folder, "7.7.1", self.progress)
            self.assertEqual(blocked.call_count, 1)
            later = time.time() + official.REMEMBER + 1
            with mock.patch.object(time, "time", lambda: later), self.assertRaises(WayFailed):
                official.set_up(self.folder, "7.7.1", self.progress)
            self.assertEqual(blocked.call_count, 2)

    def test_version_without_pin_is_not_downloaded(self) -> None:
        """Protects against an unchecked download if only .bazelversion was changed."""
        with self.assertRaisesRegex(WayFailed, "no official release 7.7.9 is pinned"):
            official.set_up(self.folder, "7.7.9", self.progress)


NAME = "bazel-7.7.1-linux-x86_64"

if __name__ == "__main__":
    unittest.main()
