/* The measurement protocol with scripted times. */
#include "support/gk_test.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tune/race.h"
#include "tune/verify.h"

enum { MAX = 40 };

typedef struct script {
    gki_racer racers[MAX];
    double seconds[MAX];
    double noise;    /* standard deviation, relative */
    double outliers; /* share of timings that take five times as long */
    double drift;    /* how much slower each further timing is, relative */
    double heat;     /* how much slower all are once `heats_until` seconds have passed, relative */
    double heats_until;
    double clock_s; /* that passed */
    double limit_s; /* of the race; 0 = none */
    gki_rng rng;
    uint32_t timings;
    uint32_t timed[MAX];
    uint32_t max_runs[MAX];
    gk_status failure[MAX]; /* of every timing after `works` */
    uint32_t works[MAX];
    const char *verdict[MAX];
    uint32_t admitted[MAX];
    uint32_t stop_after; /* timings; 0 = never */
    uint32_t order[64];
} script;

static gk_status time_scripted(void *user, uint32_t racer, uint32_t runs, bool warm,
                               double *seconds)
{
    script *s = user;
    if (s->failure[racer] != GK_OK && s->timed[racer] >= s->works[racer]) {
        return gk_fail(s->failure[racer], "test", "scripted");
    }
    s->order[s->timings % 64] = racer;
    s->timings++;
    s->timed[racer]++;
    s->max_runs[racer] = runs > s->max_runs[racer] ? runs : s->max_runs[racer];
    double value = s->seconds[racer] * (1 + s->noise * gki_rng_normal(&s->rng));
    value *= 1 + s->drift * s->timings;
    if (s->heat > 0) {
        value *= 1 + s->heat * fmin(s->clock_s / s->heats_until, 1);
    }
    s->clock_s += value * (runs + (warm ? 1 : 0));
    if (gki_rng_uniform(&s->rng) < s->outliers) {
        value *= 5;
    }
    *seconds = value;
    return GK_OK;
}

static gk_status admit_scripted(void *user, uint32_t racer, const char **status)
{
    script *s = user;
    s->admitted[racer]++;
    *status = s->verdict[racer] != NULL ? s->verdict[racer] : GKI_TRIAL_OK;
    return GK_OK;
}

static bool stop_scripted(void *user, const char *stage, uint32_t done, uint32_t total, double best)
{
    script *s = user;
    (void)stage;
    (void)best;
    assert_true(done <= total);
    if (s->limit_s > 0 && s->clock_s > s->limit_s) {
        return true;
    }
    return s->stop_after != 0 && s->timings >= s->stop_after;
}

static double left_scripted(void *user)
{
    const script *s = user;
    return s->limit_s > 0 ? s->limit_s - s->clock_s : INFINITY;
}

static void begin(script *s, uint32_t count, const double *seconds)
{
    memset(s, 0, sizeof(*s));
    gki_rng_seed(&s->rng, 1);
    for (uint32_t i = 0; i < count; i++) {
        s->seconds[i] = seconds[i];
        s->racers[i].predicted = 1e-3;
    }
    s->racers[0].is_guess = true;
}

static gki_race run(script *s, uint32_t count)
{
    gki_race race = {.racers = s->racers, .count = count, .seed = 7, .user = s};
    race.time = time_scripted;
    race.admit = admit_scripted;
    race.stop = stop_scripted;
    race.left = left_scripted;
    assert_gk_ok(gki_race_run(&race));
    return race;
}

static void test_median(void **state)
{
    (void)state;
    double odd[] = {9, 1, 5};
    double even[] = {4, 1, 2, 3};
    double median;
    double spread;
    gki_median(odd, 3, &median, &spread);
    assert_true(median == 5);
    assert_true(fabs(spread - 4.0 / 5) < 1e-15);
    gki_median(even, 4, &median, &spread);
    assert_true(median == 2.5);
    assert_true(fabs(spread - 1.0 / 2.5) < 1e-15);
    gki_median(even, 0, &median, &spread);
    assert_true(median == 0);
    assert_true(spread == 0);
}

static void test_runs_for_short_kernels(void **state)
{
    (void)state;
    assert_int_equal(gki_race_runs(2e-6), 250);
    assert_int_equal(gki_race_runs(50e-6), 10);
    assert_int_equal(gki_race_runs(500e-6), 1);
    assert_int_equal(gki_race_runs(1e-9), 256);
    assert_int_equal(gki_race_runs(1.0), 1);
    assert_int_equal(gki_race_runs(NAN), 1);
}

static void test_fastest_wins(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 0.9e-3, 0.7e-3, 3e-3, 1.6e-3, 0.95e-3};
    script s;
    begin(&s, 6, seconds);
    s.noise = 0.02;
    gki_race race = run(&s, 6);
    assert_int_equal(race.winner, 2);
    assert_true(race.settled);
    assert_true(fabs(s.racers[2].seconds - 0.7e-3) < 0.02e-3);
    assert_true(s.racers[2].spread > 0 && s.racers[2].spread < 0.05);
    assert_string_equal(s.racers[2].status, GKI_TRIAL_OK);
    assert_string_equal(s.racers[3].status, GKI_TRIAL_DROPPED);
    assert_int_equal(s.timed[3], 2); /* far off: one timing, and one more to be sure */
    assert_string_equal(s.racers[4].status, GKI_TRIAL_DROPPED);
    assert_in_range(s.timed[4], 1, 3);
    /* The guess is always in the finals. */
    assert_true(s.racers[0].finalist);
    assert_string_equal(s.racers[0].status, GKI_TRIAL_OK);
    assert_true(s.timed[0] >= 10 + 15);
}

static void test_outliers(void **state)
{
    (void)state;
    const double seconds[] = {1.1e-3, 1e-3, 1.2e-3};
    for (uint64_t seed = 0; seed < 20; seed++) {
        script s;
        begin(&s, 3, seconds);
        gki_rng_seed(&s.rng, seed);
        s.noise = 0.01;
        s.outliers = 0.05;
        assert_int_equal(run(&s, 3).winner, 1);
    }
}

/* Within 1 %: what is known is kept; else what takes less. Every time the same. */
static void test_ties(void **state)
{
    (void)state;
    const double seconds[] = {1.004e-3, 1e-3, 1.003e-3, 1.002e-3};
    for (uint64_t seed = 0; seed < 50; seed++) {
        script s;
        begin(&s, 4, seconds);
        gki_rng_seed(&s.rng, seed);
        s.noise = 0.003;
        gki_race race = run(&s, 4);
        assert_int_equal(race.winner, 0);
    }
    script s;
    begin(&s, 4, seconds);
    s.seconds[0] = 1.1e-3; /* the guess is out of the tie */
    s.racers[1].workspace = 4096;
    s.racers[2].smem = 1024;
    s.racers[3].smem = 512;
    gki_race race = run(&s, 4);
    assert_int_equal(race.winner, 3);
    begin(&s, 4, seconds);
    s.racers[2].is_incumbent = true;
    race = run(&s, 4);
    assert_int_equal(race.winner, 2);
}

static void test_winner_repeats(void **state)
{
    (void)state;
    double seconds[MAX];
    uint32_t same = 0;
    for (uint32_t i = 0; i < MAX; i++) {
        seconds[i] = 1e-3 * (1 + 0.03 * ((i * 7) % MAX));
    }
    seconds[0] = 1.2e-3;
    seconds[5] = 0.96e-3;
    for (uint64_t seed = 0; seed < 40; seed++) {
        script s;
        begin(&s, MAX, seconds);
        gki_rng_seed(&s.rng, seed);
        s.noise = 0.01;
        gki_race race = run(&s, MAX);
        same += race.winner == 5 ? 1 : 0;
    }
    assert_true(same >= 38);
}

/* A machine that gets slower while it measures: rounds are interleaved, so nobody gains by it. */
static void test_drift(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 0.95e-3, 1.02e-3};
    script s;
    begin(&s, 3, seconds);
    s.drift = 0.002;
    gki_race race = run(&s, 3);
    assert_int_equal(race.winner, 1);
}

/* Nothing but noise between the guess and the others: the guess stays. */
static void test_noise_does_not_beat_the_guess(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3};
    uint32_t kept = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        script s;
        begin(&s, 6, seconds);
        gki_rng_seed(&s.rng, seed + 100);
        s.noise = 0.2;
        kept += run(&s, 6).winner == 0 ? 1 : 0;
    }
    assert_true(kept >= 36);
}

static void test_failures(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 0.5e-3, 0.8e-3};
    script s;
    begin(&s, 3, seconds);
    s.failure[1] = GK_ERR_DEVICE; /* at once */
    gki_race race = run(&s, 3);
    assert_int_equal(race.winner, 2);
    assert_string_equal(s.racers[1].status, GKI_TRIAL_LAUNCH_ERROR);
    begin(&s, 3, seconds);
    s.seconds[2] = 0.55e-3;
    s.failure[1] = GK_ERR_DEVICE;
    s.works[1] = 12; /* in the finals */
    race = run(&s, 3);
    assert_int_equal(race.winner, 2);
    assert_string_equal(s.racers[1].status, GKI_TRIAL_LAUNCH_ERROR);
    begin(&s, 3, seconds);
    s.failure[0] = s.failure[1] = s.failure[2] = GK_ERR_DEVICE;
    race = run(&s, 3);
    assert_int_equal(race.winner, -1);
}

static void test_lost_ends_the_race(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 0.5e-3, 0.8e-3};
    script s;
    begin(&s, 3, seconds);
    s.failure[1] = GK_ERR_LOST;
    gki_race race = {.racers = s.racers, .count = 3, .user = &s, .time = time_scripted};
    assert_gk_err(gki_race_run(&race), GK_ERR_LOST, "scripted");
    assert_int_equal(race.winner, -1);
    assert_int_equal(s.timed[2], 0);
}

/* The fastest proves wrong at the last look: the next one takes its place. */
static void test_admission(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 0.5e-3, 0.55e-3};
    script s;
    begin(&s, 3, seconds);
    s.verdict[1] = GKI_TRIAL_WRONG;
    gki_race race = run(&s, 3);
    assert_int_equal(race.winner, 2);
    assert_string_equal(s.racers[1].status, GKI_TRIAL_WRONG);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(s.admitted[i], 1);
    }
    /* Those dropped beside it come back. */
    begin(&s, 3, seconds);
    s.seconds[2] = 0.9e-3;
    s.verdict[1] = GKI_TRIAL_WRONG;
    race = run(&s, 3);
    assert_int_equal(race.winner, 2);
    assert_true(race.settled);
    begin(&s, 3, seconds);
    s.verdict[0] = s.verdict[1] = s.verdict[2] = GKI_TRIAL_OOB;
    assert_int_equal(run(&s, 3).winner, -1);
}

static void test_out_of_time(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 0.98e-3, 0.5e-3, 0.4e-3};
    script s;
    begin(&s, 4, seconds);
    s.stop_after = 1; /* only the guess was timed */
    gki_race race = run(&s, 4);
    assert_int_equal(race.winner, 0);
    assert_false(race.settled);
    assert_null(s.racers[3].status);
    begin(&s, 4, seconds);
    s.stop_after = 2; /* better, but not beyond doubt */
    assert_int_equal(run(&s, 4).winner, 0);
    begin(&s, 4, seconds);
    s.stop_after = 3;
    race = run(&s, 4);
    assert_int_equal(race.winner, 2);
    assert_int_equal(s.admitted[2], 1); /* still looked at */
    assert_int_equal(s.timings, 3);
}

/* Of 40 races that end after `timings`, how many the second of two racers wins. */
static uint32_t wins_when_stopped(double seconds, double noise, uint32_t timings, bool settled)
{
    const double both[] = {1e-3, seconds};
    uint32_t won = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        script s;
        begin(&s, 2, both);
        gki_rng_seed(&s.rng, seed);
        s.noise = noise;
        s.stop_after = timings;
        gki_race race = run(&s, 2);
        assert_int_equal(race.settled, settled);
        won += race.winner == 1 ? 1 : 0;
    }
    return won;
}

/* Ten samples of each, then finals that are cut short: what is known is used, but not noise. */
static void test_out_of_time_in_the_finals(void **state)
{
    (void)state;
    assert_true(wins_when_stopped(0.97e-3, 0.001, 26, false) >= 38);
    assert_true(wins_when_stopped(0.97e-3, 0.02, 26, false) <= 4);
    /* Three samples of each. */
    assert_true(wins_when_stopped(0.97e-3, 0.001, 6, false) >= 38);
    assert_true(wins_when_stopped(0.985e-3, 0.001, 6, false) <= 2);
    assert_true(wins_when_stopped(1e-3, 0.02, 6, false) <= 6);
    assert_true(wins_when_stopped(0.97e-3, 0.002, 36, true) >= 38);
    assert_true(wins_when_stopped(1e-3, 0.02, 36, true) <= 4);
    assert_int_equal(wins_when_stopped(0.995e-3, 0, 36, true), 0); /* a tie */
}

/* There is time for one look at each of many long kernels, or for finals among the first: the early
 * ones run on a cool device, so that only finals compare like with like. */
static void test_finals_of_long_kernels(void **state)
{
    (void)state;
    double seconds[40];
    for (uint32_t i = 0; i < 40; i++) {
        seconds[i] = 12e-3 + 1e-5 * i;
    }
    seconds[3] = 11.7e-3;
    seconds[9] = 11.2e-3;
    script s;
    begin(&s, 40, seconds);
    s.limit_s = 1;
    s.heat = 0.06;
    s.heats_until = 0.2;
    gki_race race = run(&s, 40);
    assert_true(race.settled);
    assert_int_equal(race.winner, 9);
    assert_true(s.clock_s < 1.1);
    assert_int_equal(s.racers[39].n_samples, 0);
    assert_null(s.racers[39].status);
}

static void test_rounds_are_shuffled(void **state)
{
    (void)state;
    const double seconds[] = {1e-3, 1e-3, 1e-3, 1e-3};
    script s;
    begin(&s, 4, seconds);
    s.noise = 0.05;
    run(&s, 4);
    uint32_t changes = 0;
    for (uint32_t i = 44; i + 4 < 60; i += 4) {
        changes += memcmp(&s.order[i], &s.order[i + 4], 4 * sizeof(s.order[0])) != 0 ? 1 : 0;
    }
    assert_true(changes > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_runs_for_short_kernels),
        cmocka_unit_test(test_fastest_wins),
        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_winner_repeats),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_noise_does_not_beat_the_guess),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_lost_ends_the_race),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_out_of_time),
        cmocka_unit_test(test_out_of_time_in_the_finals),
        cmocka_unit_test(test_finals_of_long_kernels),
        cmocka_unit_test(test_rounds_are_shuffled),
    };
    return GK_TEST_MAIN(tests);
}
