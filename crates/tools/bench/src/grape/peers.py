"""Runs gravity with numba and with KeOps, on one thread, to compare them with the calculator.

Arguments: a file with the columns x, y, z, m of all particles, as float64, and the square of the
softening length. Reads a request per line, and writes an answer per line:

    make PEER PRECISION FILE    made VERSION     compiles, runs once, writes results to FILE:
                                                 columns ax, ay, az, pot
    run PEER PRECISION          took SECONDS     processor time of all threads
                                cannot REASON    the request failed
"""

import os
import sys
import time

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # output of libraries goes to standard error

import numpy as np

columns = np.fromfile(sys.argv[1]).reshape(4, -1)
softening = float(sys.argv[2])


def with_numba(dtype):
    import numba

    one = dtype(1)

    # With numpy's rules a division by 0 raises no exception, which would prevent vectorization.
    @numba.njit(fastmath=True, error_model="numpy")
    def gravity(x, y, z, m, eps2, ax, ay, az, pot):
        for i in range(x.size):
            xi, yi, zi = x[i], y[i], z[i]
            sx = sy = sz = sp = dtype(0)
            for j in range(x.size):
                dx, dy, dz = x[j] - xi, y[j] - yi, z[j] - zi
                rinv = one / np.sqrt(eps2 + dx * dx + dy * dy + dz * dz)
                mrinv = m[j] * rinv
                mr3inv = mrinv * (rinv * rinv)
                sx += mr3inv * dx
                sy += mr3inv * dy
                sz += mr3inv * dz
                sp -= mrinv
            ax[i], ay[i], az[i], pot[i] = sx, sy, sz, sp

    inputs = [np.ascontiguousarray(column, dtype=dtype) for column in columns]
    results = [np.empty_like(inputs[0]) for _ in range(4)]
    eps2 = dtype(softening)
    return numba.__version__, lambda: (gravity(*inputs, eps2, *results), results)[1]


def with_keops(dtype):
    import pykeops
    from pykeops.numpy import Genred

    rinv = "Rsqrt(E + SqDist(X, Y))"
    formula = f"Concat(M * Pow({rinv}, 3) * (Y - X), Minus(M * {rinv}))"
    variables = ["X = Vi(3)", "Y = Vj(3)", "M = Vj(1)", "E = Pm(1)"]
    kernel = Genred(formula, variables, reduction_op="Sum", axis=1)
    points = np.ascontiguousarray(columns[:3].T, dtype=dtype)
    mass = np.ascontiguousarray(columns[3][:, None], dtype=dtype)
    eps2 = np.array([softening], dtype=dtype)
    return pykeops.__version__, lambda: kernel(points, points, mass, eps2, backend="CPU").T


MAKERS = {"numba": with_numba, "keops": with_keops}
PRECISIONS = {"f32": np.float32, "f64": np.float64}
made = {}


def answer(words):
    verb, peer, precision = words[:3]
    if verb == "make":
        version, run = MAKERS[peer](PRECISIONS[precision])
        np.asarray(run(), dtype=np.float64).tofile(words[3])
        made[peer, precision] = run
        return f"made {version}"
    before = time.process_time()
    made[peer, precision]()
    return f"took {time.process_time() - before:.9f}"


for line in sys.stdin:
    try:
        reply = answer(line.split())
    except BaseException as error:
        reply = f"cannot {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    print(reply, file=answers)
