"""Tests sprat.grape, with NumPy's results as the reference."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import unittest
import warnings

import numpy
import sprat.grape as grape

SUM = "VARI xi; VARJ xj, mj; VARF sum; CONST scale = 1; sum += scale * mj * (xj - xi)"

MANY = 2_000_000
# A program that prints by how many bytes its memory grows when a kernel runs on a large view.
GROWN = f"""
import sys, numpy, sprat.grape as grape

def most():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

MANY = {MANY}
flat = numpy.ones(2 * MANY)
table = flat.reshape(MANY, 2)
odd = numpy.empty(16 * MANY + 1, dtype=numpy.int8)[1:].view(numpy.float64)
odd[:] = 1
record = numpy.ones(MANY, dtype=[("flag", "i1"), ("x", "f8")])
view, one = eval(sys.argv[1]), numpy.zeros(1)
kernel = grape.compile("VARI xi; VARJ xj; VARF sum; sum += xj - xi", threads=1)
kernel([one], [view[:1000]])
before = most()
assert kernel([one], [view])["sum"] == [len(view)]
print(most() - before)
"""


def expected(xi, xj, mj):
    return (mj[None, :] * (xj[None, :] - xi[:, None])).sum(axis=1)


def called(kernel, i, j):
    return kernel(i, j)["sum"]


class Grape(unittest.TestCase):
    def setUp(self):
        chance = numpy.random.default_rng(7)
        self.xi, self.xj, self.mj = chance.random(37), chance.random(53), chance.random(53)
        self.kernel = grape.compile(SUM)

    def check(self, results, expected, within=1e-12):
        numpy.testing.assert_allclose(results["sum"], expected, rtol=0, atol=within * 53)

    def test_arrays_by_name_and_by_place_give_what_numpy_gives(self):
        want = expected(self.xi, self.xj, self.mj)
        results = self.kernel(i={"xi": self.xi}, j={"mj": self.mj, "xj": self.xj})
        self.assertEqual((list(results), results["sum"].dtype), (["sum"], numpy.float64))
        self.check(results, want)
        self.check(self.kernel([self.xi], (self.xj, self.mj)), want)
        self.check(self.kernel([self.xi], (self.xj, self.mj), scale=3), 3 * want)
        self.assertEqual((self.kernel.i, self.kernel.j, self.kernel.results), (["xi"], ["xj", "mj"], ["sum"]))
        self.assertEqual(self.kernel.constants, {"scale": 1.0})
        self.assertIn("Kernel(i=", repr(self.kernel))

    def test_every_target_and_precision_agrees(self):
        want = expected(self.xi, self.xj, self.mj)
        for target in ("portable", "reference", "grapedr"):
            self.check(grape.compile(SUM, target=target, threads=2)([self.xi], [self.xj, self.mj]), want)
        narrow = [[a.astype(numpy.float32) for a in b] for b in ([self.xi], [self.xj, self.mj])]
        for precision in ("f32", None):
            results = grape.compile(SUM, precision)(*narrow)
            self.assertEqual(results["sum"].dtype, numpy.float32)
            self.check(results, want, 1e-6)

    def test_precision_follows_the_arrays_unless_it_is_chosen(self):
        # Positions near 1e6, where f32 has a resolution of 1/16.
        xi, xj = self.xi + 1e6, self.xj + 1e6
        want = expected(xi, xj, self.mj)
        kernel = grape.compile(SUM)
        wide = kernel([xi], [xj, self.mj])
        self.assertEqual(wide["sum"].dtype, numpy.float64)
        self.check(wide, want)
        for i, j, dtype in (
            ([xi.astype("f4")], [xj.astype("f4"), self.mj.astype("f4")], numpy.float32),
            ([xi.astype("f4")], [xj.astype("f4"), self.mj], numpy.float64),
            ([xi], [xj.astype("f4"), self.mj.astype("f4")], numpy.float64),
        ):
            self.assertEqual(kernel(i, j)["sum"].dtype, dtype)
        self.assertEqual(grape.compile(SUM, "f32")([xi], [xj, self.mj])["sum"].dtype, numpy.float32)
        self.assertEqual(grape.compile(SUM, "f64")([xi.astype("f4")], [xj, self.mj])["sum"].dtype, numpy.float64)
        # A constant that f32 cannot represent is refused, and not replaced by 0 or infinity.
        narrow = [self.xi.astype("f4")], [self.xj.astype("f4"), self.mj.astype("f4")]
        for scale, says in ((1e-60, "^constant scale is 1e-60, and 0 in f32"), (1e60, "and infinity in f32")):
            with self.assertRaisesRegex(ValueError, says):
                kernel(*narrow, scale=scale)
            self.check(grape.compile(SUM, "f64")(*narrow, scale=scale), scale * want, scale * 1e-6)
        # A kernel that f32 cannot compile fails in the calls that need f32, with the error's line.
        large = grape.compile("VARI xi; VARJ xj; VARF a\na += (xj - xi) * 1e300")
        large([xi], [xj])
        with self.assertRaises(grape.KernelError) as caught:
            large([xi.astype("f4")], [xj.astype("f4")])
        self.assertEqual(caught.exception.line, 2)

    def test_rows_of_a_table_are_particles(self):
        i, j = self.xi[:, None], numpy.stack([self.xj, self.mj], axis=1)
        want = expected(self.xi, self.xj, self.mj)
        for table in (j, numpy.asfortranarray(j), j[::-1][::-1], numpy.stack([self.mj, self.xj], axis=1)[:, ::-1]):
            self.check(self.kernel(i, table), want)
        self.check(self.kernel(self.xi, j), want)
        self.check(self.kernel({"xi": self.xi}, j.astype("f4")), want, 1e-6)
        # The arrays in a sequence have one dimension each.
        self.check(self.kernel([self.xi], tuple(j.T)), want)
        # The rows of a square table are particles, too.
        square = numpy.array([[1.0, 10.0], [2.0, 20.0]])
        numpy.testing.assert_array_equal(self.kernel(numpy.zeros(1), square)["sum"], [50.0])
        self.assertEqual(self.kernel(numpy.empty((0, 1)), j)["sum"].shape, (0,))
        numpy.testing.assert_array_equal(self.kernel(i, numpy.empty((0, 2)))["sum"], numpy.zeros(37))
        for wrong, says in (
            (j.T, r"^j: got \(2, 53\): rows are particles, .*pass x.T"),
            (numpy.ones((53, 3)), r"^j: got \(53, 3\): want \(N, 2\)"),
            (self.xj, r"^j: got \(53\): want \(N, 2\)"),
            (numpy.ones((2, 2, 2)), r"^j: got \(2, 2, 2\)"),
            (numpy.array(1.0), r"^j: got \(\)"),
        ):
            with self.assertRaisesRegex(ValueError, says):
                self.kernel(i, wrong)
        with self.assertRaisesRegex(TypeError, "^xj: an array of int"):
            self.kernel(i, j.astype(int))

    def test_a_child_has_threads_of_its_own(self):
        # Python 3.12 and later warns of a fork in a process with threads, which this test needs.
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        child = multiprocessing.get_context("fork")
        used, i, j = grape.compile(SUM, threads=2), [self.xi], [self.xj, self.mj]
        want = used(i, j)["sum"]
        unused = grape.compile(SUM, threads=2)

        def everything(results):
            fresh = grape.compile(SUM, threads=2)
            results.put([kernel(i, j)["sum"] for kernel in (used, unused, fresh, used)])

        def grandchild(results):
            used(i, j)
            own = child.Process(target=everything, args=(results,))
            own.start()
            own.join()

        for target in (everything, grandchild, everything):
            results = child.SimpleQueue()
            process = child.Process(target=target, args=(results,))
            process.start()
            process.join(120)
            if process.is_alive():
                process.kill()
                self.fail("a child waits for threads that it does not have")
            self.assertEqual(process.exitcode, 0)
            for got in results.get():
                numpy.testing.assert_array_equal(got, want)
        # The parent's kernel still works.
        numpy.testing.assert_array_equal(used(i, j)["sum"], want)

    def test_a_child_runs_while_its_parent_computes(self):
        """A child does not wait for a lock that another thread held when the process forked."""
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        kernel, done = grape.compile(SUM, threads=2), threading.Event()
        x = numpy.random.default_rng(1).random(3000)
        i, j = [self.xi], [self.xj, self.mj]

        def compute():
            while not done.is_set():
                kernel([x], [x, x])

        others = [threading.Thread(target=compute) for _ in range(2)]
        for other in others:
            other.start()
        try:
            for _ in range(20):
                process = multiprocessing.get_context("fork").Process(target=lambda: kernel(i, j))
                process.start()
                process.join(120)
                if process.is_alive():
                    process.kill()
                self.assertEqual(process.exitcode, 0)
        finally:
            done.set()
            for other in others:
                other.join()

    def test_kernels_are_pickled_and_copied(self):
        i, j = [self.xi.astype("f4")], [self.xj.astype("f4"), self.mj.astype("f4")]
        for given in ((SUM,), (SUM, "f32", 2), (SUM, "f64", None, "reference"), (SUM, None, 1, "portable")):
            kernel = grape.compile(*given)
            want = kernel(i, j)["sum"]
            for other in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel), copy.copy(kernel)):
                got = other(i, j)["sum"]
                self.assertEqual((got.dtype, repr(other)), (want.dtype, repr(kernel)))
                numpy.testing.assert_array_equal(got, want)
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        for way in ("fork", "spawn"):
            with multiprocessing.get_context(way).Pool(2) as pool:
                for got in pool.starmap_async(called, [(kernel, i, j)] * 4).get(timeout=120):
                    numpy.testing.assert_array_equal(got, want)

    def test_views_of_every_kind_give_the_same_as_their_copies(self):
        table = numpy.arange(1.0, 301.0).reshape(100, 3)
        fortran = numpy.asfortranarray(table)
        odd = numpy.frombuffer(b"x" + table.tobytes(), dtype=numpy.float64, offset=1)
        record = numpy.zeros(50, dtype=[("flag", "i1"), ("x", "f8")])
        record["x"] = numpy.arange(50.0)
        broadcast = numpy.broadcast_to(numpy.float64(2.0), 9)
        views = [
            table[:, 1], table[5:90:7, 2], table[::-1, 0], table[40:40, 1], table[3, :], fortran[:, 2], fortran[::2, 1],
            odd, odd[::3], record["x"], broadcast, table[:, 0][::-3], table.T[1][2:70:3], table[:, 1][99:],
        ]
        self.assertFalse(odd.flags.aligned)
        for view in views:
            one = numpy.ones(1)
            got = self.kernel([view], [numpy.array([0.5]), one])["sum"]
            numpy.testing.assert_array_equal(got, 0.5 - view, err_msg=repr((view.shape, view.strides)))

    def test_results_have_the_types_of_their_reductions(self):
        text = "VARI xi; VARJ xj; VARF near, any; near argmin= (xj - xi) * (xj - xi); any or= xj > xi"
        results = grape.compile(text)([self.xi], [self.xj])
        squares = (self.xj[None, :] - self.xi[:, None]) ** 2
        numpy.testing.assert_array_equal(results["near"], squares.argmin(axis=1))
        numpy.testing.assert_array_equal(results["any"], (self.xj[None, :] > self.xi[:, None]).any(axis=1))
        self.assertEqual((results["near"].dtype, results["any"].dtype), (numpy.int64, numpy.bool_))

    def test_no_particles_are_no_error(self):
        none = numpy.empty(0)
        self.assertEqual(self.kernel([none], [self.xj, self.mj])["sum"].shape, (0,))
        numpy.testing.assert_array_equal(self.kernel([self.xi], [none, none])["sum"], numpy.zeros(37))
        self.assertTrue(numpy.isnan(self.kernel([self.xi], [self.xj, self.mj * numpy.nan])["sum"]).all())

    def test_kernels_that_are_there_to_begin_with_run(self):
        self.assertIn("gravity", grape.kernels())
        for text in grape.kernels().values():
            kernel = grape.compile(text)
            needed = {name: 0.5 for name, default in kernel.constants.items() if default is None}
            results = kernel([self.xi] * len(kernel.i), [self.xj] * len(kernel.j), **needed)
            self.assertTrue(all(array.shape == (37,) for array in results.values()))

    def test_text_that_is_no_kernel_says_where(self):
        with self.assertRaises(grape.KernelError) as caught:
            grape.compile("VARI xi\nVARJ xj\nVARF a\na += xk")
        self.assertEqual((caught.exception.line, caught.exception.column), (4, 6))
        self.assertIsInstance(caught.exception, grape.Error)
        for wrong in ({"precision": "f16"}, {"threads": 0}, {"threads": 10**9}, {"target": "gpu"}, {"threads": 10**9, "target": "reference"}):
            with self.assertRaisesRegex(ValueError, next(iter(wrong))):
                grape.compile(SUM, **wrong)
        limit = 16 * len(os.sched_getaffinity(0))
        with self.assertRaisesRegex(ValueError, "^1000000000 threads: .*16 for each of .* processors"):
            grape.compile(SUM, threads=10**9)
        self.check(grape.compile(SUM, threads=min(limit, 32))([self.xi], [self.xj, self.mj]), expected(self.xi, self.xj, self.mj))
        with self.assertRaisesRegex(ValueError, "constant i"):
            grape.compile("VARI xi; VARJ xj; VARF a; CONST i = 1; a += i * (xj - xi)")

    def test_arrays_that_do_not_fit_are_named(self):
        j = [self.xj, self.mj]
        for wrong in ([1.0, 2.0], self.xi.astype(int), self.xi.astype(">f8"), self.xi.astype(complex), None, 3.5):
            with self.assertRaisesRegex(TypeError, "^xi: "):
                self.kernel({"xi": wrong}, j)
        with self.assertRaisesRegex(TypeError, "^xi: a masked array"):
            self.kernel({"xi": numpy.ma.masked_greater(self.xi, 0.5)}, j)
        with self.assertRaisesRegex(ValueError, "^xi: .*dimension"):
            self.kernel({"xi": self.xi.reshape(1, -1)}, j)
        with self.assertRaisesRegex(ValueError, "mj.*52.*xj.*53"):
            self.kernel([self.xi], [self.xj, self.mj[1:]])
        for i in ({}, {"xi": self.xi, "yi": self.xi}, [], [self.xi, self.xi], None):
            with self.assertRaisesRegex(ValueError, "^i: .*xi"):
                self.kernel(i, j)
        for i in (5, {7: self.xi}):
            with self.assertRaisesRegex(TypeError, "^i: "):
                self.kernel(i, j)
        with self.assertRaisesRegex(TypeError, "scales"):
            self.kernel([self.xi], j, scales=1)
        with self.assertRaisesRegex(TypeError, "scale"):
            self.kernel([self.xi], j, scale="much")

    def test_views_are_read_where_they_lie_and_others_copied(self):
        def grown(view):
            ran = subprocess.run([sys.executable, "-W", "error", "-c", GROWN, view], capture_output=True, text=True)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            return int(ran.stdout)

        size = 8 * MANY
        for view in ("flat", "flat[:MANY]", "table[:, 1]", "table[::1, 0]", "flat[1::2]", "table.T[0]", "odd[::2].copy()"):
            self.assertLess(grown(view), size // 2, view)
        # Views that must be copied use more memory, which shows that the measurement works.
        for view in ("table[::-1, 0]", "odd[::2]", "flat[::-2]", "record['x']"):
            self.assertGreater(grown(view), size // 2, view)

    def test_other_threads_run_meanwhile(self):
        kernel = grape.compile(grape.kernels()["gravity"], threads=1, target="reference")
        x = numpy.random.default_rng(1).random(1000)
        done, turns = threading.Event(), []

        def count():
            while not done.is_set():
                turns.append(1)
                time.sleep(1e-3)

        # With this interval no thread is made to release Python's lock. If a call kept the lock,
        # the counting thread could not run during the call.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(3600)
        other = threading.Thread(target=count)
        other.start()
        i, j, meanwhile = [x] * 3, [x] * 4, 0
        # Each call takes as long as many turns of the counting thread. On a busy machine a call may
        # end before the first turn, so several calls are made.
        for _ in range(100):
            before = len(turns)
            kernel(i, j)
            meanwhile += len(turns) - before
            if meanwhile:
                break
        done.set()
        other.join()
        self.assertGreater(meanwhile, 0)


if __name__ == "__main__":
    unittest.main()
