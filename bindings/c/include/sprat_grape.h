/* Sprat's calculator for C and C++: runs kernels of particle interactions on a program's arrays.
 *
 * A kernel is a text that computes, for each of many particles i, results from all particles j;
 * docs/kernels.md describes its language. The calls follow those of GRAPE hosts: load a kernel,
 * send j and i, run, get the results. Data that was sent stays for later runs: a program that moves
 * some bodies sends their positions again, but not their masses.
 *
 *     sprat_grape *grape;
 *     const char *text = "VARI xi; VARJ xj, mj; VARF sum; sum += mj * (xj - xi)";
 *     if (sprat_grape_init(text, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape) ||
 *         sprat_grape_send_j_f64(grape, "xj", x, n, 0) ||
 *         sprat_grape_send_j_f64(grape, "mj", m, n, 0) ||
 *         sprat_grape_send_i_f64(grape, "xi", x, n, 0) || sprat_grape_run(grape) ||
 *         sprat_grape_get_result_f64(grape, "sum", sum, n, 0))
 *         fprintf(stderr, "%s\n", sprat_grape_error());
 *     sprat_grape_free(grape);
 *
 * UNITS are the caller's choice: the kernel's formulas use the numbers as they are. Infinities and
 * NaNs are allowed; docs/kernels.md describes their effect.
 *
 * ARRAYS are `count` numbers. The first is at the given address, and each is `stride` bytes after
 * the previous one; a stride of 0 means that there are no gaps. So a member of an array of
 * structures can be sent, and got, in place: &body[0].x, n, sizeof body[0]. The stride must be at
 * least a number's size. A table double x[n][3] with a row for each particle, as in NumPy, is sent
 * column by column: &x[0][0], then &x[0][1], n, sizeof x[0]. A table double x[3][n] with a row for
 * each variable is sent row by row: x[0], n, 0. Addresses need not be aligned. Empty arrays (a
 * count of 0, with any address or NULL) are allowed: over no j a sum is 0, a minimum is infinity,
 * and so on; for no i there are no results.
 *
 * OWNERSHIP: a call copies the data that it sends before it returns, and writes results to the
 * caller's memory; the library keeps no pointers. The caller owns a calculator, and must free it.
 *
 * ERRORS: a call returns SPRAT_GRAPE_OK; otherwise it returns another sprat_grape_code and has no
 * effect, and sprat_grape_error() describes the error, with line and column if it is in a kernel's
 * text. No input terminates the program: an error of the library itself is SPRAT_GRAPE_PANIC, and
 * is reported on stderr. The library cannot detect an invalid address other than NULL, or a
 * calculator that was freed. If a run cannot get the memory that it needs, the program is aborted,
 * like any program that does not check malloc.
 *
 * THREADS: any thread may make calls. Calls with one calculator wait for each other. Data that was
 * sent stays for the next run, so each thread should have its own calculator. A calculator must not
 * be used while or after it is freed. A calculator has threads of its own. After a fork() the child
 * can use the parent's calculator, and the calculator starts new threads in the child. If another
 * thread was in a call with the calculator during the fork(), calls in the child return
 * SPRAT_GRAPE_FORKED.
 */
#ifndef SPRAT_GRAPE_H
#define SPRAT_GRAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A calculator: a compiled kernel, the data sent to it, and the results of its last run. */
typedef struct sprat_grape sprat_grape;

/* The return values of calls. */
enum sprat_grape_code {
    /* The call succeeded. */
    SPRAT_GRAPE_OK = 0,
    /* An invalid argument: NULL, a text that is not UTF-8, an unknown precision or engine, too many
     * threads, or a stride below a number's size. */
    SPRAT_GRAPE_ARGUMENT = 1,
    /* The text is not a valid kernel. */
    SPRAT_GRAPE_KERNEL = 2,
    /* The kernel is too large for the engine, the processor lacks the engine, or threads could not
     * be started. */
    SPRAT_GRAPE_ENGINE = 3,
    /* The kernel has no variable, constant or result of this name. */
    SPRAT_GRAPE_NAME = 4,
    /* Variables of one kind of particles have different counts, there are too many particles, or
     * the number of results differs from the caller's count. */
    SPRAT_GRAPE_COUNT = 5,
    /* The result has another type. */
    SPRAT_GRAPE_TYPE = 6,
    /* A variable was not sent, a constant was not set, or the kernel has not run. */
    SPRAT_GRAPE_MISSING = 7,
    /* There is no memory for a copy of the data. */
    SPRAT_GRAPE_MEMORY = 8,
    /* An error of the library itself; the calculator can only be freed. */
    SPRAT_GRAPE_PANIC = 9,
    /* A thread of the parent was in a call with the calculator at the fork: make another
     * calculator. */
    SPRAT_GRAPE_FORKED = 10
};

/* The precision of variables and results for which the kernel does not state one. */
enum sprat_grape_precision {
    SPRAT_GRAPE_F32 = 1,
    SPRAT_GRAPE_F64 = 2
};

/* The engines that run a kernel. */
enum sprat_grape_engine {
    SPRAT_GRAPE_BEST = 0,     /* The widest vectors that this processor has. */
    SPRAT_GRAPE_AVX512 = 1,   /* Vectors of 512 bits. */
    SPRAT_GRAPE_AVX2 = 2,     /* Vectors of 256 bits. */
    SPRAT_GRAPE_PORTABLE = 3, /* Loops for any processor. */
    /* A simulated GRAPE-DR of one chip: gives the results of that machine, and is slow. */
    SPRAT_GRAPE_GRAPEDR = 4,
    /* One pair after another, in f64: the reference for the other engines, and slow. */
    SPRAT_GRAPE_REFERENCE = 5
};

/* Compiles a kernel's text (UTF-8, at most 1 MiB), and stores a new calculator at *grape, or NULL
 * after a failure.
 *
 * precision: a sprat_grape_precision; engine: a sprat_grape_engine; threads: at most 16 for each
 * processor that the program may use, or 0 for one per processor (the last two engines always use
 * one thread). Results do not depend on the number of threads. */
int sprat_grape_init(const char *text, int precision, int engine, unsigned threads,
                     sprat_grape **grape);

/* Frees a calculator; does nothing for NULL. */
void sprat_grape_free(sprat_grape *grape);

/* Sends the numbers of one i variable, which replace the variable's earlier numbers. In a run all i
 * variables must have the same count, at most 2,147,483,647. A variable takes numbers of either
 * type: f64 numbers are rounded for a variable that is f32 by the kernel or by `precision`. */
int sprat_grape_send_i_f32(sprat_grape *grape, const char *name, const float *numbers,
                           size_t count, size_t stride);
int sprat_grape_send_i_f64(sprat_grape *grape, const char *name, const double *numbers,
                           size_t count, size_t stride);

/* Sends the numbers of one j variable; the rules for i variables apply. The counts of i and j may
 * differ. */
int sprat_grape_send_j_f32(sprat_grape *grape, const char *name, const float *numbers,
                           size_t count, size_t stride);
int sprat_grape_send_j_f64(sprat_grape *grape, const char *name, const double *numbers,
                           size_t count, size_t stride);

/* Sets a constant, which replaces the kernel's default or an earlier value. */
int sprat_grape_set(sprat_grape *grape, const char *name, double value);

/* Runs the kernel on the data that was sent: every i with every j. Returns when all results are
 * ready. A kernel without i variables runs for one i; a kernel without j variables runs over one j.
 * After a failure there are no results. */
int sprat_grape_run(sprat_grape *grape);

/* Writes one result of the last run to the caller's array of `count` numbers, which must be the
 * number of i. The function must be that of the result's type: f32 or f64 by the kernel or
 * `precision`, bool for `and=` and `or=`, index for `argmin=` and `argmax=` (the index of the j,
 * from 0; -1 for none). Data sent afterwards does not change results before the next run. */
int sprat_grape_get_result_f32(sprat_grape *grape, const char *name, float *results, size_t count,
                               size_t stride);
int sprat_grape_get_result_f64(sprat_grape *grape, const char *name, double *results, size_t count,
                               size_t stride);
int sprat_grape_get_result_bool(sprat_grape *grape, const char *name, bool *results, size_t count,
                                size_t stride);
int sprat_grape_get_result_index(sprat_grape *grape, const char *name, int64_t *results,
                                 size_t count, size_t stride);

/* Returns the description of the last failure of a call on this thread, in UTF-8; the description
 * has several lines for an error in a kernel's text. Never returns NULL; the text is empty if no
 * call has failed. The text belongs to the library, and is valid until the next failure on this
 * thread, or the thread's end. */
const char *sprat_grape_error(void);

/* Returns the text of a built-in kernel, such as "gravity". If no kernel has this name, returns
 * NULL, and sprat_grape_error() describes the error. The text is valid until the program ends. */
const char *sprat_grape_ready(const char *name);

#ifdef __cplusplus
}
#endif

#endif
