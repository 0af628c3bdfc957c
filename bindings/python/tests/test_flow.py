"""Tests sprat.flow with servers that the Rust test tests/flow.rs starts."""

import faulthandler
import filecmp
import inspect
import os
import signal
import socket
import tempfile
import threading
import unittest
from pathlib import Path

import sprat
import sprat.flow as flow

URL = os.environ["SPRAT_TEST_URL"]
SECOND = os.environ["SPRAT_TEST_SECOND"]
SLOW = os.environ["SPRAT_TEST_SLOW"]
CLOSED = os.environ["SPRAT_TEST_CLOSED"]
SOURCE = os.environ["SPRAT_TEST_SOURCE"]

# A shell makes background programs ignore SIGINT, and Python keeps this setting.
signal.signal(signal.SIGINT, signal.default_int_handler)
# After 120 s, far more than the tests take, the process prints its stacks and ends.
faulthandler.dump_traceback_later(120, exit=True)


class Flow(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.target = self.place / "file"

    def same(self):
        self.assertTrue(filecmp.cmp(SOURCE, self.target, shallow=False))
        self.assertEqual([entry.name for entry in self.place.iterdir()], ["file"])

    def test_a_file_arrives_and_what_came_of_it_is_told(self):
        outcome = flow.copy(URL, self.target, receive_buffer=0)
        self.same()
        self.assertEqual((outcome.target, outcome.length), (str(self.target), os.path.getsize(SOURCE)))
        self.assertTrue(outcome.verified and not outcome.unchanged)
        self.assertEqual(outcome.progress.received, outcome.length)
        self.assertEqual(sum(size for _, size in outcome.sources), outcome.length)
        self.assertGreater(outcome.seconds, 0)
        self.assertIn("Outcome(target=", repr(outcome))
        with self.assertRaises(AttributeError):
            outcome.length = 5
        again = flow.copy(URL, str(self.place), receive_buffer=0)
        self.assertTrue(again.unchanged)
        self.assertIsNone(again.blake3)
        # A local file is copied too, and checked with the given hash.
        self.assertEqual(flow.copy(SOURCE, self.place / "local", blake3=outcome.blake3).blake3, outcome.blake3)

    def test_several_hosts_and_streams_share_the_work(self):
        outcome = flow.copy(URL, self.target, hosts=[SECOND], streams=4, limit="320Mb/s", timeout="60s", receive_buffer="8MiB")
        self.same()
        self.assertEqual(len(outcome.sources), 2)
        self.assertTrue(all(size > 0 for _, size in outcome.sources), outcome.sources)

    def test_progress_is_told_while_it_goes(self):
        told = []
        flow.copy(URL, self.target, limit=40_000_000, progress=told.append)
        self.assertGreater(len(told), 2)
        self.assertEqual([seen.done for seen in told], sorted(seen.done for seen in told))
        self.assertEqual((told[-1].done, told[-1].length), (os.path.getsize(SOURCE),) * 2)
        self.assertIn("Progress(done=", repr(told[-1]))

    def test_other_threads_run_meanwhile(self):
        counted, stop = 0, threading.Event()

        def count():
            nonlocal counted
            while not stop.wait(0.01):
                counted += 1

        counting = threading.Thread(target=count)
        counting.start()
        flow.copy(URL, self.target, limit=24_000_000)
        stop.set()
        counting.join()
        self.assertGreater(counted, 3)

    def test_ctrl_c_stops_it_and_the_same_call_goes_on(self):
        here = threading.Event()

        def interrupt():
            here.wait()
            os.kill(os.getpid(), signal.SIGINT)

        def seen(progress):
            if progress.done > 2 << 20:
                here.set()

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with self.assertRaises(KeyboardInterrupt):
            flow.copy(SLOW, self.target, progress=seen)
        interrupting.join()
        self.assertFalse(self.target.exists())
        outcome = flow.copy(SLOW.replace(SLOW.split("/")[2], URL.split("/")[2]), self.target)
        self.same()
        self.assertLess(outcome.progress.received, outcome.length)

    def test_ctrl_c_is_heard_where_nobody_answers(self):
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(1)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with self.assertRaises(KeyboardInterrupt):
                flow.copy(f"http://127.0.0.1:{deaf.getsockname()[1]}/file", self.target, timeout=86400)

    def test_what_a_callback_raises_ends_the_copy(self):
        def refuse(progress):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            flow.copy(SLOW, self.target, progress=refuse)
        self.assertFalse(self.target.exists())
        flow.copy(URL, self.target)
        self.same()

    def test_errors_are_of_their_kind(self):
        self.target.write_text("mine")
        new = self.place / "new"
        for kind, source, target, keywords in [
            (flow.NotFound, URL + "x", new, {}),
            (flow.Exists, URL, self.target, {}),
            (flow.UsageError, "gopher://somewhere/x", new, {}),
            (flow.UsageError, URL, new, {"streams": 99}),
            (flow.UsageError, URL, new, {"blake3": "12"}),
            (flow.UsageError, URL, new, {"timeout": float("nan")}),
            (flow.UsageError, URL, new, {"timeout": "60"}),
            (flow.UsageError, URL, new, {"limit": 0}),
            (flow.UsageError, URL, new, {"limit": "2GB"}),
            (flow.UsageError, URL, new, {"receive_buffer": 0.5}),
            (flow.UsageError, URL, new, {"hosts": ["a b"]}),
            (flow.Corrupt, URL, new, {"blake3": "0" * 64}),
            (flow.Corrupt, URL, new, {"sha256": "f" * 64}),
            (flow.Unreachable, "sprat://127.0.0.1:1/file", new, {}),
            (flow.Denied, CLOSED, new, {}),
            (flow.Denied, CLOSED, new, {"token": "another-that-is-not-it"}),
            (flow.DestinationError, URL, "/proc/no/where", {}),
            (flow.DestinationError, URL, new, {"cacert": "/no/such/file"}),
        ]:
            with self.subTest(kind=kind, source=source, keywords=keywords):
                with self.assertRaises(kind) as caught:
                    flow.copy(source, target, **keywords)
                self.assertIsInstance(caught.exception, flow.Error)
                self.assertFalse(new.exists())
        self.assertEqual(self.target.read_text(), "mine")
        with self.assertRaises(TypeError):
            flow.copy(URL, new, 4)
        notes = []
        flow.copy(URL, self.target, force=True, insecure=True, notice=notes.append)
        self.same()
        self.assertIn("--insecure", notes[0])
        flow.copy(CLOSED, new, token="not-to-be-guessed-0123456789")

    def test_the_stubs_say_what_there_is(self):
        stubs = Path(flow.__file__).with_suffix(".pyi").read_text()
        self.assertTrue((Path(flow.__file__).parent / "py.typed").exists())
        self.assertTrue(sprat.__version__)
        for name in flow.__all__:
            self.assertTrue(f"class {name}" in stubs or f"def {name}" in stubs, name)
            self.assertTrue(inspect.getdoc(getattr(flow, name)), name)
        for name in inspect.signature(flow.copy).parameters:
            self.assertIn(f"    {name}: ", stubs)
            self.assertIn(name, inspect.getdoc(flow.copy))


if __name__ == "__main__":
    unittest.main()
