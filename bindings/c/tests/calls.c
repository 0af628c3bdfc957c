/* Checks the promises of sprat_grape.h in a program that is valid C and C++. The program prints
 * each check that fails, and the number of checks. */
#include <sprat_grape.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 300
/* The address of a member of the first body. Compilers reject `&`, as the member is not aligned. */
#define AT(type, all, member) ((type *)(void *)((char *)(all) + offsetof(struct body, member)))

struct body {
    char odd; /* puts the other members at odd addresses */
    float x, y, z, m;
    double ax, ay, az;
} __attribute__((packed));

static int checks, wrong;
static const char *const SUM = "VARI xi; VARJ xj, mj; VARF sum; CONST scale; sum += scale * mj * (xj - xi)";

/* Checks a condition, and reports its line if it is false. */
#define HOLDS(what) holds((what), __LINE__, #what)
/* Checks that a call returns this code, and that the error message contains these words. */
#define FAILS(code, words, call) fails((call), (code), (words), __LINE__, #call)

static void holds(int whether, int line, const char *what) {
    checks++;
    if (!whether) {
        wrong++;
        printf("line %d: %s (%s)\n", line, what, sprat_grape_error());
    }
}

static void fails(int code, int want, const char *words, int line, const char *what) {
    const char *said = sprat_grape_error();
    checks++;
    if (code != want || !strstr(said, words)) {
        wrong++;
        printf("line %d: %s gave %d (want %d), and said: %s\n", line, what, code, want, said);
    }
}

static double number(unsigned n) { return (double)(n * 2654435761u % 4294967291u) / 4294967291.0; }

static sprat_grape *made(const char *text, int precision, int engine) {
    sprat_grape *grape = NULL;
    HOLDS(sprat_grape_init(text, precision, engine, 2, &grape) == SPRAT_GRAPE_OK);
    HOLDS(grape != NULL);
    return grape;
}

/* Computes the gravity of bodies in an array of structures with any engine. The accelerations are
 * stored as double whatever the precision is; the potentials go to an array of their own. */
static void gravity(struct body *all, int precision, int engine, double *pot) {
    sprat_grape *grape = made(sprat_grape_ready("gravity"), precision, engine);
    float narrow[3][N];

    HOLDS(!sprat_grape_set(grape, "eps2", 0.01));
    HOLDS(!sprat_grape_send_i_f32(grape, "xi", AT(float, all, x), N, sizeof all[0]));
    HOLDS(!sprat_grape_send_i_f32(grape, "yi", AT(float, all, y), N, sizeof all[0]));
    HOLDS(!sprat_grape_send_i_f32(grape, "zi", AT(float, all, z), N, sizeof all[0]));
    HOLDS(!sprat_grape_send_j_f32(grape, "xj", AT(float, all, x), N, sizeof all[0]));
    HOLDS(!sprat_grape_send_j_f32(grape, "yj", AT(float, all, y), N, sizeof all[0]));
    HOLDS(!sprat_grape_send_j_f32(grape, "zj", AT(float, all, z), N, sizeof all[0]));
    HOLDS(!sprat_grape_send_j_f32(grape, "mj", AT(float, all, m), N, sizeof all[0]));
    HOLDS(!sprat_grape_run(grape));
    if (precision == SPRAT_GRAPE_F64) {
        HOLDS(!sprat_grape_get_result_f64(grape, "ax", AT(double, all, ax), N, sizeof all[0]));
        HOLDS(!sprat_grape_get_result_f64(grape, "ay", AT(double, all, ay), N, sizeof all[0]));
        HOLDS(!sprat_grape_get_result_f64(grape, "az", AT(double, all, az), N, sizeof all[0]));
        HOLDS(!sprat_grape_get_result_f64(grape, "pot", pot, N, 0));
    } else {
        HOLDS(!sprat_grape_get_result_f32(grape, "ax", narrow[0], N, 0));
        HOLDS(!sprat_grape_get_result_f32(grape, "ay", narrow[1], N, sizeof(float)));
        HOLDS(!sprat_grape_get_result_f32(grape, "az", narrow[2], N, 0));
        for (int n = 0; n < N; n++) {
            all[n].ax = narrow[0][n];
            all[n].ay = narrow[1][n];
            all[n].az = narrow[2][n];
        }
        HOLDS(!sprat_grape_get_result_f32(grape, "pot", narrow[0], N, 0));
        for (int n = 0; n < N; n++)
            pot[n] = narrow[0][n];
    }
    sprat_grape_free(grape);
}

static void engines_agree_and_momentum_is_none(void) {
    static struct body all[N];
    static double judge[4][N], pot[N];
    const int engines[] = {SPRAT_GRAPE_BEST, SPRAT_GRAPE_PORTABLE, SPRAT_GRAPE_GRAPEDR, SPRAT_GRAPE_BEST};
    const int precisions[] = {SPRAT_GRAPE_F64, SPRAT_GRAPE_F64, SPRAT_GRAPE_F64, SPRAT_GRAPE_F32};
    const double within[] = {1e-12, 1e-12, 1e-12, 2e-5};
    double greatest = 0;

    for (unsigned n = 0; n < N; n++) {
        memset(&all[n], 'x', sizeof all[n]);
        all[n].x = (float)number(4 * n + 1);
        all[n].y = (float)number(4 * n + 2);
        all[n].z = (float)number(4 * n + 3);
        all[n].m = (float)(number(4 * n + 4) / N);
    }
    gravity(all, SPRAT_GRAPE_F64, SPRAT_GRAPE_REFERENCE, judge[3]);
    for (int n = 0; n < N; n++) {
        judge[0][n] = all[n].ax;
        judge[1][n] = all[n].ay;
        judge[2][n] = all[n].az;
        greatest = fmax(greatest, fabs(all[n].ax));
    }
    HOLDS(greatest > 0.1);
    /* Checks the reference engine against this program's own sum for one body. */
    double x = 0, p = 0;
    for (int n = 0; n < N; n++) {
        double dx = all[n].x - (double)all[5].x, dy = all[n].y - (double)all[5].y, dz = all[n].z - (double)all[5].z;
        double r = sqrt(0.01 + dx * dx + dy * dy + dz * dz);
        x += all[n].m * dx / (r * r * r);
        p -= all[n].m / r;
    }
    HOLDS(fabs(x - judge[0][5]) < 1e-13 && fabs(p - judge[3][5]) < 1e-13);

    for (int engine = 0; engine < 4; engine++) {
        double off = 0, sum[3] = {0, 0, 0};
        for (int n = 0; n < N; n++)
            all[n].ax = all[n].ay = all[n].az = pot[n] = 1e9;
        gravity(all, precisions[engine], engines[engine], pot);
        for (int n = 0; n < N; n++) {
            off = fmax(off, fmax(fabs(all[n].ax - judge[0][n]), fabs(all[n].ay - judge[1][n])));
            off = fmax(off, fmax(fabs(all[n].az - judge[2][n]), fabs(pot[n] - judge[3][n])));
            sum[0] += all[n].m * all[n].ax;
            sum[1] += all[n].m * all[n].ay;
            sum[2] += all[n].m * all[n].az;
            holds(all[n].odd == 'x', __LINE__, "bytes between results are unchanged");
        }
        holds(off < within[engine], __LINE__, "engines agree");
        holds(fmax(fabs(sum[0]), fmax(fabs(sum[1]), fabs(sum[2]))) < within[engine], __LINE__, "the forces sum to zero");
    }
}

static void results_are_of_their_types(void) {
    sprat_grape *grape =
        made("VARI xi; VARJ xj; VARF near, any, s; VARF n: f32; near argmin= (xj - xi) * (xj - xi); any or= xj > xi; n += 1; s += xj", SPRAT_GRAPE_F64,
             SPRAT_GRAPE_BEST);
    const double xi[] = {0.9, 2.1, 7}, xj[] = {0, 1, 2, 3};
    int64_t near[3] = {9, 9, 9};
    bool any[3] = {false, true, true};
    float n[3];
    double s[3];

    HOLDS(!sprat_grape_send_i_f64(grape, "xi", xi, 3, 0) && !sprat_grape_send_j_f64(grape, "xj", xj, 4, 0) && !sprat_grape_run(grape));
    HOLDS(!sprat_grape_get_result_index(grape, "near", near, 3, 0) && near[0] == 1 && near[1] == 2 && near[2] == 3);
    HOLDS(!sprat_grape_get_result_bool(grape, "any", any, 3, 0) && any[0] && any[1] && !any[2]);
    HOLDS(!sprat_grape_get_result_f32(grape, "n", n, 3, 0) && n[0] == 4 && n[2] == 4);
    HOLDS(!sprat_grape_get_result_f64(grape, "s", s, 3, 0) && s[0] == 6);
    FAILS(SPRAT_GRAPE_TYPE, "near is of type index", sprat_grape_get_result_f64(grape, "near", s, 3, 0));
    FAILS(SPRAT_GRAPE_TYPE, "any is of type bool", sprat_grape_get_result_index(grape, "any", near, 3, 0));
    FAILS(SPRAT_GRAPE_TYPE, "n is of type f32", sprat_grape_get_result_f64(grape, "n", s, 3, 0));
    FAILS(SPRAT_GRAPE_TYPE, "s is of type f64", sprat_grape_get_result_f32(grape, "s", n, 3, 0));
    FAILS(SPRAT_GRAPE_TYPE, "s is of type f64", sprat_grape_get_result_bool(grape, "s", any, 3, 0));
    /* Data sent after a run does not change the results of that run. Data that did not change need
     * not be sent again. */
    HOLDS(!sprat_grape_send_i_f64(grape, "xi", xi, 1, 0));
    HOLDS(!sprat_grape_get_result_index(grape, "near", near, 3, 0) && near[2] == 3);
    HOLDS(!sprat_grape_run(grape) && !sprat_grape_get_result_index(grape, "near", near, 1, 0));
    sprat_grape_free(grape);
}

static void texts_that_are_no_kernels(void) {
    sprat_grape *grape = (sprat_grape *)&checks;
    FAILS(SPRAT_GRAPE_KERNEL, "line 4, column 6: `xk` is not known",
          sprat_grape_init("VARI xi\nVARJ xj\nVARF a\na += xk", SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape));
    HOLDS(strstr(sprat_grape_error(), "\n    4 | a += xk\n      |      ^^") != NULL);
    HOLDS(grape == NULL);
    FAILS(SPRAT_GRAPE_KERNEL, "no result", sprat_grape_init("", SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "text is not UTF-8, from byte 2", sprat_grape_init("a \xff", SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "text is NULL", sprat_grape_init(NULL, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "grape is NULL", sprat_grape_init(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, NULL));
    FAILS(SPRAT_GRAPE_ARGUMENT, "precision is 0", sprat_grape_init(SUM, 0, SPRAT_GRAPE_BEST, 0, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "precision is -1", sprat_grape_init(SUM, -1, SPRAT_GRAPE_BEST, 0, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "engine is 6", sprat_grape_init(SUM, SPRAT_GRAPE_F64, 6, 0, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "are the limit, 16 for each of", sprat_grape_init(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 1u << 20, &grape));
    FAILS(SPRAT_GRAPE_ARGUMENT, "4294967295 threads", sprat_grape_init(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_REFERENCE, ~0u, &grape));
    HOLDS(grape == NULL);
    HOLDS(sprat_grape_ready("gravitas") == NULL && strstr(sprat_grape_error(), "no kernel \"gravitas\"; there are [\"gravity\""));
    HOLDS(sprat_grape_ready(NULL) == NULL && !strcmp(sprat_grape_error(), "name is NULL"));
    HOLDS(sprat_grape_ready("gravity") == sprat_grape_ready("gravity"));

    /* A kernel that is too large for a GRAPE-DR, but within the limits of the language. */
    static char large[1 << 16];
    size_t end = (size_t)sprintf(large, "VARI xi; VARJ xj; VARF a; v0 = xj - xi");
    for (int n = 1; n < 600; n++)
        end += (size_t)sprintf(large + end, "; v%d = sqrt(v%d + %d)", n, n - 1, n);
    end += (size_t)sprintf(large + end, "; a += v599");
    /* Uses the values in reverse order, so that all of them must be kept until here. */
    for (int n = 598; n >= 0; n--)
        end += (size_t)sprintf(large + end, " * v%d", n);
    FAILS(SPRAT_GRAPE_ENGINE, "", sprat_grape_init(large, SPRAT_GRAPE_F64, SPRAT_GRAPE_GRAPEDR, 0, &grape));
    HOLDS(grape == NULL && strlen(sprat_grape_error()) > 10);

    static char endless[(1 << 20) + 2];
    memset(endless, ' ', sizeof endless - 1);
    FAILS(SPRAT_GRAPE_KERNEL, "1048576 are the limit", sprat_grape_init(endless, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 0, &grape));
}

static void numbers_that_do_not_fit(void) {
    sprat_grape *grape = made(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST);
    double x[4] = {0, 1, 2, 3}, sum[4] = {7, 7, 7, 7};
    const float *nothing = NULL;
    char name[5000];

    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    FAILS(SPRAT_GRAPE_ARGUMENT, "grape is NULL", sprat_grape_send_i_f64(NULL, "xi", x, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "name is NULL", sprat_grape_send_i_f64(grape, NULL, x, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "name is not UTF-8", sprat_grape_send_i_f64(grape, "x\xc0i", x, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "numbers is NULL", sprat_grape_send_j_f32(grape, "xj", nothing, 1, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "stride of 7 bytes", sprat_grape_send_i_f64(grape, "xi", x, 4, 7));
    FAILS(SPRAT_GRAPE_NAME, "no i variable \"xj\"; there are [\"xi\"]", sprat_grape_send_i_f64(grape, "xj", x, 4, 0));
    FAILS(SPRAT_GRAPE_NAME, "no j variable \"\"; there are [\"xj\", \"mj\"]", sprat_grape_send_j_f64(grape, "", x, 4, 0));
    FAILS(SPRAT_GRAPE_NAME, "no j variable", sprat_grape_send_j_f64(grape, name, x, 4, 0));
    HOLDS(strlen(sprat_grape_error()) < 200);
    FAILS(SPRAT_GRAPE_COUNT, "are the limit", sprat_grape_send_i_f64(grape, "xi", x, (size_t)1 << 31, 0));
    FAILS(SPRAT_GRAPE_COUNT, "are the limit", sprat_grape_send_i_f64(grape, "xi", x, SIZE_MAX, 0));
    FAILS(SPRAT_GRAPE_COUNT, "are the limit", sprat_grape_send_i_f64(grape, "xi", x, 4, SIZE_MAX / 4));
    FAILS(SPRAT_GRAPE_NAME, "no constant \"scales\"; there are [\"scale\"]", sprat_grape_set(grape, "scales", 1));
    FAILS(SPRAT_GRAPE_ARGUMENT, "grape is NULL", sprat_grape_set(NULL, "scale", 1));
    FAILS(SPRAT_GRAPE_ARGUMENT, "name is NULL", sprat_grape_set(grape, NULL, 1));

    FAILS(SPRAT_GRAPE_MISSING, "has not been called", sprat_grape_get_result_f64(grape, "sum", sum, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "grape is NULL", sprat_grape_run(NULL));
    FAILS(SPRAT_GRAPE_MISSING, "i variable xi was not sent", sprat_grape_run(grape));
    HOLDS(!sprat_grape_send_i_f64(grape, "xi", x, 4, 0) && !sprat_grape_send_j_f64(grape, "xj", x, 4, 0));
    FAILS(SPRAT_GRAPE_MISSING, "j variable mj was not sent", sprat_grape_run(grape));
    HOLDS(!sprat_grape_send_j_f64(grape, "mj", x, 3, 0));
    FAILS(SPRAT_GRAPE_COUNT, "j variable mj has 3 particles, xj has 4", sprat_grape_run(grape));
    HOLDS(!sprat_grape_send_j_f64(grape, "mj", x, 4, 0));
    FAILS(SPRAT_GRAPE_MISSING, "constant scale was not given", sprat_grape_run(grape));
    HOLDS(!sprat_grape_set(grape, "scale", 2) && !sprat_grape_run(grape));

    FAILS(SPRAT_GRAPE_COUNT, "room for 3 results of sum; the kernel was run for 4 i", sprat_grape_get_result_f64(grape, "sum", sum, 3, 0));
    FAILS(SPRAT_GRAPE_COUNT, "room for 5 results", sprat_grape_get_result_f64(grape, "sum", sum, 5, 0));
    FAILS(SPRAT_GRAPE_COUNT, "are the limit", sprat_grape_get_result_f64(grape, "sum", sum, SIZE_MAX, 0));
    FAILS(SPRAT_GRAPE_NAME, "no result \"xi\"; there are [\"sum\"]", sprat_grape_get_result_f64(grape, "xi", sum, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "results is NULL", sprat_grape_get_result_f64(grape, "sum", NULL, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "stride of 1 bytes", sprat_grape_get_result_f64(grape, "sum", sum, 4, 1));
    FAILS(SPRAT_GRAPE_ARGUMENT, "name is NULL", sprat_grape_get_result_f64(grape, NULL, sum, 4, 0));
    FAILS(SPRAT_GRAPE_ARGUMENT, "grape is NULL", sprat_grape_get_result_f64(NULL, "sum", sum, 4, 0));
    HOLDS(sum[0] == 7 && sum[3] == 7);
    HOLDS(!sprat_grape_get_result_f64(grape, "sum", sum, 4, 0) && sum[0] == 28 && sum[3] == -8);

    /* The calculator keeps copies of data. After a failed run there are no results, not even those
     * of an earlier run. */
    x[1] = 100;
    HOLDS(!sprat_grape_run(grape) && !sprat_grape_get_result_f64(grape, "sum", sum, 4, 0) && sum[0] == 28);
    HOLDS(!sprat_grape_send_j_f64(grape, "mj", x, 3, 0));
    FAILS(SPRAT_GRAPE_COUNT, "mj", sprat_grape_run(grape));
    FAILS(SPRAT_GRAPE_MISSING, "has not been called, or failed", sprat_grape_get_result_f64(grape, "sum", sum, 4, 0));

    /* Empty arrays. */
    HOLDS(!sprat_grape_send_j_f64(grape, "xj", NULL, 0, 0) && !sprat_grape_send_j_f32(grape, "mj", NULL, 0, 0) && !sprat_grape_run(grape));
    HOLDS(!sprat_grape_get_result_f64(grape, "sum", sum, 4, 0) && sum[0] == 0 && sum[3] == 0);
    HOLDS(!sprat_grape_send_i_f64(grape, "xi", NULL, 0, 0) && !sprat_grape_run(grape));
    HOLDS(!sprat_grape_get_result_f64(grape, "sum", NULL, 0, 0));
    FAILS(SPRAT_GRAPE_COUNT, "for 0 i", sprat_grape_get_result_f64(grape, "sum", sum, 1, 0));

    /* NaN is allowed as a number. */
    x[0] = NAN;
    HOLDS(!sprat_grape_send_i_f64(grape, "xi", x, 4, 0) && !sprat_grape_send_j_f64(grape, "xj", x + 1, 1, 0));
    HOLDS(!sprat_grape_send_j_f64(grape, "mj", x + 3, 1, 0) && !sprat_grape_run(grape));
    HOLDS(!sprat_grape_get_result_f64(grape, "sum", sum, 4, 0) && isnan(sum[0]) && sum[1] == 0);
    sprat_grape_free(grape);
    sprat_grape_free(NULL);
}

/* Each thread uses its own calculator, and gets its own error messages. All threads also share a
 * calculator, whose calls wait for each other. */
static sprat_grape *shared;

static void *thread(void *of) {
    int wrong_here = 0;
    double own = *(const double *)of, sum;
    for (int round = 0; round < 50; round++) {
        sprat_grape *grape;
        char words[32];
        sprintf(words, "\"t%.0f\"", own);
        if (sprat_grape_init(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_PORTABLE, 1, &grape))
            return (void *)"init";
        wrong_here |= sprat_grape_set(grape, "scale", own);
        wrong_here |= sprat_grape_send_i_f64(grape, "xi", &own, 1, 0) | sprat_grape_send_j_f64(grape, "xj", &own, 1, 0);
        wrong_here |= sprat_grape_send_j_f64(grape, "mj", &own, 1, 0) | sprat_grape_run(grape);
        wrong_here |= sprat_grape_get_result_f64(grape, "sum", &sum, 1, 0);
        wrong_here |= sum != 0;
        words[strlen(words) - 1] = 0;
        wrong_here |= sprat_grape_set(grape, words + 1, 0) != SPRAT_GRAPE_NAME;
        wrong_here |= sprat_grape_send_i_f64(shared, "xi", &own, 1, 0) | sprat_grape_run(shared);
        wrong_here |= strstr(sprat_grape_error(), words) == NULL;
        sprat_grape_free(grape);
    }
    return wrong_here ? (void *)"a thread's calls" : NULL;
}

static void threads_have_their_own(void) {
    pthread_t threads[4];
    const double numbers[4] = {1, 2, 3, 4};
    shared = made(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST);
    HOLDS(!sprat_grape_send_j_f64(shared, "xj", numbers, 4, 0) && !sprat_grape_send_j_f64(shared, "mj", numbers, 4, 0));
    HOLDS(!sprat_grape_set(shared, "scale", 1));
    for (int n = 0; n < 4; n++)
        HOLDS(!pthread_create(&threads[n], NULL, thread, (void *)&numbers[n]));
    for (int n = 0; n < 4; n++) {
        void *what;
        HOLDS(!pthread_join(threads[n], &what));
        holds(what == NULL, __LINE__, what ? (const char *)what : "a thread");
    }
    sprat_grape_free(shared);
}

/* A child of fork() can use a calculator of its parent, with new threads. The child does not wait
 * for a lock that a thread of the parent held during the fork. */
static int in_child(int (*call)(sprat_grape *), sprat_grape *grape) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(call(grape));
    }
    HOLDS(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int seven(sprat_grape *grape) {
    double sum[3];
    int code = sprat_grape_run(grape);
    return code ? code : sprat_grape_get_result_f64(grape, "sum", sum, 3, 0) || sum[0] != 7 ? 99 : 0;
}

static int sets(sprat_grape *grape) {
    return sprat_grape_set(grape, "scale", 1);
}

static void *runs(void *grape) {
    return sprat_grape_run((sprat_grape *)grape) ? (void *)"run" : NULL;
}

static void children_have_threads_of_their_own(void) {
    enum { LONG = 3000 };
    static double many[LONG];
    const double x[] = {0, 1, 3}, m[] = {1, 1, 2};
    sprat_grape *grape;
    pthread_t other;
    void *what;
    int code = 0;

    HOLDS(!sprat_grape_init(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_BEST, 2, &grape) && !sprat_grape_set(grape, "scale", 1));
    HOLDS(!sprat_grape_send_i_f64(grape, "xi", x, 3, 0) && !sprat_grape_send_j_f64(grape, "xj", x, 3, 0));
    HOLDS(!sprat_grape_send_j_f64(grape, "mj", m, 3, 0));
    HOLDS(in_child(seven, grape) == 0);
    HOLDS(!sprat_grape_run(grape) && in_child(seven, grape) == 0 && in_child(seven, grape) == 0);
    sprat_grape_free(grape);

    HOLDS(!sprat_grape_init(SUM, SPRAT_GRAPE_F64, SPRAT_GRAPE_REFERENCE, 1, &grape) && !sprat_grape_set(grape, "scale", 1));
    HOLDS(!sprat_grape_send_i_f64(grape, "xi", many, LONG, 0) && !sprat_grape_send_j_f64(grape, "xj", many, LONG, 0));
    HOLDS(!sprat_grape_send_j_f64(grape, "mj", many, LONG, 0));
    /* The other thread's call takes long. A child that is forked meanwhile must return FORKED, and
     * must not wait for ever. */
    HOLDS(!pthread_create(&other, NULL, runs, grape));
    for (int n = 0; n < 1000 && (code = in_child(sets, grape)) == 0; n++)
        ;
    HOLDS(code == SPRAT_GRAPE_FORKED);
    HOLDS(!pthread_join(other, &what) && what == NULL);
    sprat_grape_free(grape);
}

int main(void) {
    HOLDS(sprat_grape_error()[0] == 0);
    engines_agree_and_momentum_is_none();
    results_are_of_their_types();
    texts_that_are_no_kernels();
    numbers_that_do_not_fit();
    threads_have_their_own();
    children_have_threads_of_their_own();
    printf("%d checks, %d wrong\n", checks, wrong);
    return wrong != 0;
}
