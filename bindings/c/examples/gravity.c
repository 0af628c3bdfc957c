/* Integrates a small cluster of bodies with the leapfrog method; prints its energies and momentum
 * before and after.
 *
 *     cc -std=c11 -O2 gravity.c -I ../include -L ../../../target/release -lsprat_c -lm \
 *         -Wl,-rpath,../../../target/release -o gravity && ./gravity
 */
#include <sprat_grape.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BODIES = 1000, STEPS = 50 };

static const double STEP = 1e-2; /* in units of time in which the gravitational constant is 1 */
static const double SOFTENING = 0.05;

struct body {
    double mass, pot;
    double at[3], velocity[3], pull[3];
};

/* If a call has failed, prints the library's error message and ends the program. */
static void must(int code) {
    if (code != SPRAT_GRAPE_OK) {
        fprintf(stderr, "gravity: %s\n", sprat_grape_error());
        exit(1);
    }
}

/* Returns a pseudorandom number between -1 and 1. The sequence is the same on every machine. */
static double chance(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 4503599627370496.0 - 1.0;
}

/* Computes every body's acceleration and potential from the present positions. The masses were sent
 * before, and stay. */
static void pulls(sprat_grape *grape, struct body *all) {
    static const char *const i[] = {"xi", "yi", "zi"}, *const j[] = {"xj", "yj", "zj"}, *const a[] = {"ax", "ay", "az"};
    for (int axis = 0; axis < 3; axis++) {
        must(sprat_grape_send_i_f64(grape, i[axis], &all[0].at[axis], BODIES, sizeof all[0]));
        must(sprat_grape_send_j_f64(grape, j[axis], &all[0].at[axis], BODIES, sizeof all[0]));
    }
    must(sprat_grape_run(grape));
    for (int axis = 0; axis < 3; axis++)
        must(sprat_grape_get_result_f64(grape, a[axis], &all[0].pull[axis], BODIES, sizeof all[0]));
    must(sprat_grape_get_result_f64(grape, "pot", &all[0].pot, BODIES, sizeof all[0]));
}

static void tell(const char *when, const struct body *all) {
    double kinetic = 0, potential = 0, momentum[3] = {0, 0, 0};
    for (int n = 0; n < BODIES; n++) {
        /* The potential includes the body's own, -m / softening, which does not change. */
        potential += 0.5 * all[n].mass * all[n].pot;
        for (int axis = 0; axis < 3; axis++) {
            kinetic += 0.5 * all[n].mass * all[n].velocity[axis] * all[n].velocity[axis];
            momentum[axis] += all[n].mass * all[n].velocity[axis];
        }
    }
    printf("%s: kinetic energy %.6f, all energy %.9f, momentum %.1e %.1e %.1e\n", when, kinetic, kinetic + potential, momentum[0],
           momentum[1], momentum[2]);
}

int main(void) {
    static struct body all[BODIES];
    sprat_grape *grape;

    must(sprat_grape_init(sprat_grape_ready("gravity"), SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape));
    must(sprat_grape_set(grape, "eps2", SOFTENING * SOFTENING));
    for (int n = 0; n < BODIES; n++) {
        all[n].mass = 1.0 / BODIES;
        for (int axis = 0; axis < 3; axis++)
            all[n].at[axis] = chance();
    }
    must(sprat_grape_send_j_f64(grape, "mj", &all[0].mass, BODIES, sizeof all[0]));
    pulls(grape, all);
    tell("before", all);
    for (int step = 0; step < STEPS; step++) {
        for (int n = 0; n < BODIES; n++)
            for (int axis = 0; axis < 3; axis++) {
                all[n].velocity[axis] += 0.5 * STEP * all[n].pull[axis];
                all[n].at[axis] += STEP * all[n].velocity[axis];
            }
        pulls(grape, all);
        for (int n = 0; n < BODIES; n++)
            for (int axis = 0; axis < 3; axis++)
                all[n].velocity[axis] += 0.5 * STEP * all[n].pull[axis];
    }
    tell("after", all);
    sprat_grape_free(grape);
    return 0;
}
