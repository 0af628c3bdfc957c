"""What sprat.grape promises, judged by NumPy."""

import sys
import threading
import unittest

import numpy
import sprat.grape as grape

SUM = "VARI xi; VARJ xj, mj; VARF sum; CONST scale = 1; sum += scale * mj * (xj - xi)"


def expected(xi, xj, mj):
    return (mj[None, :] * (xj[None, :] - xi[:, None])).sum(axis=1)


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
        results = grape.compile(SUM, "f32")(*[[a.astype(numpy.float32) for a in b] for b in ([self.xi], [self.xj, self.mj])])
        self.assertEqual(results["sum"].dtype, numpy.float32)
        self.check(results, want, 1e-6)

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
        for wrong in ({"precision": "f16"}, {"threads": 0}, {"threads": 10**9}, {"target": "gpu"}):
            with self.assertRaisesRegex(ValueError, next(iter(wrong))):
                grape.compile(SUM, **wrong)
        with self.assertRaisesRegex(ValueError, "constant i"):
            grape.compile("VARI xi; VARJ xj; VARF a; CONST i = 1; a += i * (xj - xi)")

    def test_arrays_that_do_not_fit_are_named(self):
        j = [self.xj, self.mj]
        for wrong in ([1.0, 2.0], self.xi.astype(int), self.xi.astype(">f8"), self.xi.astype(complex), None, 3.5):
            with self.assertRaisesRegex(TypeError, "^xi: "):
                self.kernel({"xi": wrong}, j)
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

    def test_other_threads_run_meanwhile(self):
        kernel = grape.compile(grape.kernels()["gravity"], threads=1, target="reference")
        x = numpy.random.default_rng(1).random(1500)
        done, turns = threading.Event(), []

        def count():
            while not done.is_set():
                turns.append(1)

        # With the lock held, nobody would count between the call's first moment and its last.
        sys.setswitchinterval(1e-4)
        other = threading.Thread(target=count)
        other.start()
        before = len(turns)
        kernel([x] * 3, [x] * 4)
        after = len(turns)
        done.set()
        other.join()
        self.assertGreater(after - before, 100)


if __name__ == "__main__":
    unittest.main()
