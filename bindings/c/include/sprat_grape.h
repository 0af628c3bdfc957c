/* Sprat's calculator for C and C++: kernels of particle interactions, on a program's own arrays.
 *
 * A kernel is a text that says what each of many i has of all j (docs/kernels.md is its language). The calls have the shape of those that
 * a GRAPE's hosts made: a kernel is loaded, j and i are sent, it runs, results are got. What was sent stays from run to run: who moves
 * some bodies sends their positions anew, and not their masses.
 *
 *     sprat_grape *grape;
 *     if (sprat_grape_init("VARI xi; VARJ xj, mj; VARF sum; sum += mj * (xj - xi)", SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape) ||
 *         sprat_grape_send_j_f64(grape, "xj", x, n, 0) || sprat_grape_send_j_f64(grape, "mj", m, n, 0) ||
 *         sprat_grape_send_i_f64(grape, "xi", x, n, 0) || sprat_grape_run(grape) ||
 *         sprat_grape_get_result_f64(grape, "sum", sum, n, 0))
 *         fprintf(stderr, "%s\n", sprat_grape_error());
 *     sprat_grape_free(grape);
 *
 * UNITS are the caller's: numbers go into the kernel's formulas as they are. Infinity and what is not a number are numbers like others;
 * docs/kernels.md says what comes of them.
 *
 * ARRAYS are `count` numbers, the first at the address that is given, each `stride` bytes after the one before; a stride of 0 says that
 * there are no gaps between them. So a member of an array of structures is sent, and got, where it lies: &body[0].x, n, sizeof body[0]. The
 * stride may be no less than a number's size; a table double x[n][3] with a row a particle, as
 * NumPy has it, is sent column by column: &x[0][0], then &x[0][1], n, sizeof x[0], and one with a
 * row a variable, double x[3][n], row by row: x[0], n, 0. Nothing here guesses which; addresses
 * need not be aligned. No numbers at all (a count of 0, from any address or NULL) are
 * good: of no j a sum is 0, a minimum infinity, and so on; for no i there are no results.
 *
 * OWNERSHIP: whatever is sent is copied before the call returns, whatever is got is written to the caller's memory, and none of it is kept.
 * A calculator is the caller's, who frees it.
 *
 * ERRORS: a call returns SPRAT_GRAPE_OK, or another sprat_grape_code and does nothing; sprat_grape_error() says in words what is wrong and,
 * in a kernel's text, in which line and column. No input ends the program: a mistake of the library's own is SPRAT_GRAPE_PANIC, and the system's
 * error stream has a line of it. What is not checked, because it cannot be: an address that is neither NULL nor of what it should be, a
 * calculator that has been freed. Where the system has no memory left for what a run needs, the program is aborted, as by any that does not
 * check malloc.
 *
 * THREADS: calls may come from any thread. Those with one calculator wait for one another, and since what is sent is what the next run
 * takes, each thread had better have its own. None may be in use, or be used, while or after it is
 * freed. A calculator has threads of its own. After a fork() the child uses it like one of its own,
 * and it starts threads there; one that another thread was in a call with at that moment gives
 * SPRAT_GRAPE_FORKED in the child.
 */
#ifndef SPRAT_GRAPE_H
#define SPRAT_GRAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel, ready to run, with what was sent to it and what came of its last run. */
typedef struct sprat_grape sprat_grape;

/* What calls return. */
enum sprat_grape_code {
    SPRAT_GRAPE_OK = 0,       /* It is done. */
    SPRAT_GRAPE_ARGUMENT = 1, /* NULL where something must be, a text that is not UTF-8, a number that means nothing, a short stride. */
    SPRAT_GRAPE_KERNEL = 2,   /* The text is no kernel. */
    SPRAT_GRAPE_ENGINE = 3,   /* The kernel is too large for the engine, the processor lacks it, or threads could not be started. */
    SPRAT_GRAPE_NAME = 4,     /* The kernel has nothing of this name and kind. */
    SPRAT_GRAPE_COUNT = 5,    /* Numbers of different counts for one kind of particles, too many, or not as many results as room. */
    SPRAT_GRAPE_TYPE = 6,     /* The result is of another type. */
    SPRAT_GRAPE_MISSING = 7,  /* Something was not sent or set, or nothing has run. */
    SPRAT_GRAPE_MEMORY = 8,   /* No memory for a copy. */
    SPRAT_GRAPE_PANIC = 9,    /* A mistake of the library's own; the calculator can only be freed. */
    SPRAT_GRAPE_FORKED = 10   /* A thread of the parent was in a call with it at the fork: make another. */
};

/* What variables and results are of that do not say it in the kernel. */
enum sprat_grape_precision {
    SPRAT_GRAPE_F32 = 1,
    SPRAT_GRAPE_F64 = 2
};

/* What computes. */
enum sprat_grape_engine {
    SPRAT_GRAPE_BEST = 0,     /* The best vectors that this processor has. */
    SPRAT_GRAPE_AVX512 = 1,   /* Its vectors of 512 bits. */
    SPRAT_GRAPE_AVX2 = 2,     /* Those of 256. */
    SPRAT_GRAPE_PORTABLE = 3, /* Loops that every processor has. */
    SPRAT_GRAPE_GRAPEDR = 4,  /* A simulated GRAPE-DR of one chip: true to what the machine would give, and slow. */
    SPRAT_GRAPE_REFERENCE = 5 /* One pair after the other, in f64: what the others are judged by, and slow. */
};

/* Compiles a kernel's text (UTF-8, at most 1 MiB), and puts a calculator at *grape; after a failure NULL.
 *
 * precision: a sprat_grape_precision; engine: a sprat_grape_engine; threads: 1 to 16 for each
 * processor that the program may use, or 0 for one a processor (the last two engines have one).
 * Results do not depend on their number. */
int sprat_grape_init(const char *text, int precision, int engine, unsigned threads, sprat_grape **grape);

/* Frees a calculator; of NULL, nothing. */
void sprat_grape_free(sprat_grape *grape);

/* Sends the numbers of one i variable, in place of those that it had; all i variables of a run must be of as many, 2,147,483,647 at most. A
 * variable takes numbers of either type: what is of f32 in the kernel has numbers of f64 rounded,
 * since `precision`, or the kernel, says so. */
int sprat_grape_send_i_f32(sprat_grape *grape, const char *name, const float *numbers, size_t count, size_t stride);
int sprat_grape_send_i_f64(sprat_grape *grape, const char *name, const double *numbers, size_t count, size_t stride);

/* The same of one j variable. i and j need not be of as many. */
int sprat_grape_send_j_f32(sprat_grape *grape, const char *name, const float *numbers, size_t count, size_t stride);
int sprat_grape_send_j_f64(sprat_grape *grape, const char *name, const double *numbers, size_t count, size_t stride);

/* Sets a constant, in place of the kernel's own value or what was set before. */
int sprat_grape_set(sprat_grape *grape, const char *name, double value);

/* Runs the kernel on what was sent: every i with every j. It returns when all results are there. A kernel without i variables is run for one
 * i, and one without j variables over one j. After a failure there are no results. */
int sprat_grape_run(sprat_grape *grape);

/* Writes one result of the last run to where the caller has room for `count` numbers: one for each i, neither fewer nor more. The function must
 * be that of the result's type: numbers by what the kernel or `precision` says, bool of `and=` and `or=`, index of `argmin=` and `argmax=`
 * (which j, from 0; -1 for none). What is sent afterwards changes no result before the next run. */
int sprat_grape_get_result_f32(sprat_grape *grape, const char *name, float *results, size_t count, size_t stride);
int sprat_grape_get_result_f64(sprat_grape *grape, const char *name, double *results, size_t count, size_t stride);
int sprat_grape_get_result_bool(sprat_grape *grape, const char *name, bool *results, size_t count, size_t stride);
int sprat_grape_get_result_index(sprat_grape *grape, const char *name, int64_t *results, size_t count, size_t stride);

/* What was wrong when a call last failed on this thread: UTF-8, of several lines for a kernel's text. Never NULL; empty if none has
 * failed. It is the library's, and good until the next failure on this thread, or the thread's end. */
const char *sprat_grape_error(void);

/* The text of a kernel that is there to begin with, such as "gravity"; NULL, and a message, if there is none of this name. It is good
 * for as long as the program runs. */
const char *sprat_grape_ready(const char *name);

#ifdef __cplusplus
}
#endif

#endif
