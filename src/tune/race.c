#include "tune/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tune/verify.h"

enum {
    FINALISTS = 6, /* besides the guess and the incumbent */
    MIN_ROUNDS = 15,
    FEWEST_ROUNDS = 6,  /* that tell anything: their interval is from the least to the greatest */
    FEWEST_SAMPLES = 3, /* for a scatter; */
    MANY_SAMPLES = 8,   /* with fewer it may look small by chance */
};
static const double TIE = 0.01;
static const double SETTLED =
    0.005; /* half-width of the interval, relative, that ends the finals */
static const double UNSETTLED_MARGIN = 0.05; /* to beat the guess by without finals, at most */
static const double SCATTER_MARGIN = 4;      /* the same, times both spreads, if these are known */
static const double FINALS_SHARE = 0.6;      /* of the race's time, at most */
static const double SHORTEST_BATCH = 500e-6; /* launches that overlap may fall out of step later */
static const double LENGTHY = 2e-3;
static const double CHEAP = 5e-3; /* a timing that may be repeated for a racer far behind */

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

static double sort_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(values[0]), compare_doubles);
    double upper = values[count / 2];
    return count % 2 == 1 ? upper : (values[count / 2 - 1] + upper) / 2;
}

void gki_median(double *values, uint32_t count, double *median, double *spread)
{
    *median = 0;
    *spread = 0;
    if (count == 0) {
        return;
    }
    *median = sort_median(values, count);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = fabs(values[i] - *median);
    }
    double deviation = sort_median(values, count);
    *spread = *median > 0 ? deviation / *median : 0;
}

uint32_t gki_race_runs(double estimate)
{
    if (!(estimate > 0) || estimate >= SHORTEST_BATCH) {
        return 1;
    }
    double runs = ceil(SHORTEST_BATCH / estimate - 1e-6); /* 10, not 11, of 50 us */
    return runs < GKI_RACE_RUNS ? (uint32_t)runs : GKI_RACE_RUNS;
}

static bool racing(const gki_racer *r)
{
    return r->status == NULL;
}

static bool favoured(const gki_racer *r)
{
    return r->is_guess || r->is_incumbent;
}

static double best_seconds(const gki_race *race)
{
    double best = 0;
    for (uint32_t i = 0; i < race->count; i++) {
        const gki_racer *r = &race->racers[i];
        if (racing(r) && r->seconds > 0 && (best <= 0 || r->seconds < best)) {
            best = r->seconds;
        }
    }
    return best;
}

static bool stopped(const gki_race *race, const char *stage, uint32_t done, uint32_t total)
{
    return race->stop != NULL && race->stop(race->user, stage, done, total, best_seconds(race));
}

static bool ends_race(gk_status status)
{
    return status == GK_ERR_LOST || status == GK_ERR_CANCELLED || status == GK_ERR_NOMEM;
}

/* What the finals take when they end as soon as they tell anything. */
static double finals_seconds(double best)
{
    const double batch = best < SHORTEST_BATCH ? SHORTEST_BATCH : best;
    const uint32_t runs = best < LENGTHY ? 2 : 1; /* one of them to warm up */
    return (FINALISTS + 2) * FEWEST_ROUNDS * runs * batch;
}

/* Is what is left needed for the finals? Without them, racers are compared that ran at different
 * times, at different clocks. */
static bool finals_are_due(const gki_race *race, double reserve)
{
    const double best = best_seconds(race);
    return race->left != NULL && best > 0 &&
           race->left(race->user) < fmin(finals_seconds(best), reserve);
}

/* One timing; a failure that is the racer's own becomes its status. */
static gk_status time_racer(gki_race *race, uint32_t i, bool warm, double *seconds)
{
    gki_racer *r = &race->racers[i];
    double estimate = r->seconds > 0 ? r->seconds : r->predicted;
    if (!(estimate > 0) || !isfinite(estimate)) {
        estimate = SHORTEST_BATCH;
    }
    warm = warm && estimate < LENGTHY; /* a long one warms up while it is timed */
    gk_status status = race->time(race->user, i, gki_race_runs(estimate), warm, seconds);
    if (status == GK_OK && !(*seconds > 0 && isfinite(*seconds))) {
        /* A clock too coarse for the kernel; not a kernel that takes no time. */
        *seconds = 1e-9;
    }
    if (status != GK_OK && !ends_race(status)) {
        r->status = GKI_TRIAL_LAUNCH_ERROR;
        return GK_OK;
    }
    return status;
}

static void summarize(gki_racer *r, const double *values, uint32_t count)
{
    double copy[GKI_RACE_ROUNDS > GKI_RACE_SAMPLES ? GKI_RACE_ROUNDS : GKI_RACE_SAMPLES];
    memcpy(copy, values, count * sizeof(copy[0]));
    gki_median(copy, count, &r->seconds, &r->spread);
}

/* --- stages --- */

/* Three timings that are all beyond the limit need no fourth. */
static bool hopeless(const gki_race *race, const gki_racer *r, double limit)
{
    double shortest = r->samples[0];
    for (uint32_t i = 1; i < r->n_samples; i++) {
        shortest = fmin(shortest, r->samples[i]);
    }
    return r->n_samples >= 3 && !favoured(r) && shortest > limit * best_seconds(race);
}

/* Brings a racer to `samples` timings, or fewer if they put it beyond the limit. */
static gk_status sample(gki_race *race, uint32_t i, uint32_t samples, double limit)
{
    gki_racer *r = &race->racers[i];
    gk_status status = GK_OK;
    bool first = true;
    while (r->n_samples < samples && racing(r) && status == GK_OK && !hopeless(race, r, limit)) {
        double seconds = 0;
        status = time_racer(race, i, first, &seconds);
        first = false;
        if (status == GK_OK && racing(r)) {
            r->samples[r->n_samples++] = seconds;
            summarize(r, r->samples, r->n_samples);
        }
    }
    return status;
}

/* One timing is not enough to drop a racer on, if another is cheap: it may be an outlier. */
static gk_status doubt(gki_race *race, uint32_t i)
{
    gki_racer *r = &race->racers[i];
    if (r->n_samples != 1 || r->seconds > CHEAP) {
        return GK_OK;
    }
    gk_status status = sample(race, i, 2, INFINITY);
    if (status == GK_OK && r->n_samples == 2) {
        r->seconds = fmin(r->samples[0], r->samples[1]);
    }
    return status;
}

static gk_status run_stage(gki_race *race, uint32_t samples, double limit, double reserve,
                           bool *out_of_time)
{
    for (uint32_t i = 0; i < race->count && !*out_of_time; i++) {
        const gki_racer *r = &race->racers[i];
        if (racing(r) && (favoured(r) || !finals_are_due(race, reserve))) {
            gk_status status = sample(race, i, samples, limit);
            if (status != GK_OK) {
                return status;
            }
        }
        *out_of_time = stopped(race, "measure", i + 1, race->count);
    }
    double best = best_seconds(race);
    for (uint32_t i = 0; i < race->count; i++) {
        gki_racer *r = &race->racers[i];
        if (!racing(r) || favoured(r) || r->seconds <= limit * best) {
            continue;
        }
        const bool hurry = *out_of_time || finals_are_due(race, reserve);
        gk_status status = hurry ? GK_OK : doubt(race, i);
        if (status != GK_OK) {
            return status;
        }
        if (racing(r) && r->seconds > limit * best) {
            r->status = GKI_TRIAL_DROPPED;
        }
    }
    return GK_OK;
}

/* --- admission --- */

/* The fastest that is racing and no finalist yet; -1 if there is none. */
static int32_t fastest_outside(const gki_race *race)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < race->count; i++) {
        const gki_racer *r = &race->racers[i];
        if (racing(r) && !r->finalist && r->seconds > 0 &&
            (best < 0 || r->seconds < race->racers[best].seconds)) {
            best = (int32_t)i;
        }
    }
    return best;
}

static gk_status admit(gki_race *race, uint32_t i)
{
    gki_racer *r = &race->racers[i];
    const char *verdict = GKI_TRIAL_OK;
    gk_status status = GK_OK;
    if (race->admit != NULL) {
        status = race->admit(race->user, i, &verdict);
    }
    if (status == GK_OK) {
        r->finalist = strcmp(verdict, GKI_TRIAL_OK) == 0;
        r->status = r->finalist ? NULL : verdict;
    }
    return status;
}

/* The favoured and the fastest others that prove right, up to `places` of these. *refused: one that
 * the rest was measured against did not. */
static gk_status choose_finalists(gki_race *race, uint32_t places, bool *refused)
{
    gk_status status = GK_OK;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < race->count && status == GK_OK; i++) {
        gki_racer *r = &race->racers[i];
        if (racing(r) && r->seconds > 0 && favoured(r) && !r->finalist) {
            status = admit(race, i);
            *refused = *refused || !racing(r);
        }
        taken += r->finalist && !favoured(r) ? 1 : 0;
    }
    while (taken < places && status == GK_OK) {
        int32_t next = fastest_outside(race);
        if (next < 0) {
            break;
        }
        status = admit(race, (uint32_t)next);
        taken += race->racers[next].finalist ? 1 : 0;
        *refused = *refused || !racing(&race->racers[next]);
    }
    return status;
}

/* Those that were too slow beside one that proved wrong get their chance. */
static void take_back(gki_race *race)
{
    for (uint32_t i = 0; i < race->count; i++) {
        gki_racer *r = &race->racers[i];
        if (r->status != NULL && strcmp(r->status, GKI_TRIAL_DROPPED) == 0) {
            r->status = NULL;
        }
    }
}

/* --- finals --- */

static uint32_t list_finalists(const gki_race *race, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < race->count && n < FINALISTS + 2; i++) {
        if (race->racers[i].finalist && racing(&race->racers[i])) {
            list[n++] = i;
        }
    }
    return n;
}

static void shuffle(gki_rng *rng, uint32_t *list, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)gki_rng_below(rng, i);
        uint32_t swap = list[i - 1];
        list[i - 1] = list[j];
        list[j] = swap;
    }
}

/*
 * A 95 % interval of the median of a - b over the rounds, from the order statistics: no assumption
 * about the noise.
 */
static void paired_interval(const gki_racer *a, const gki_racer *b, uint32_t rounds, double *low,
                            double *high)
{
    double differences[GKI_RACE_ROUNDS] = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        differences[i] = a->rounds[i] - b->rounds[i];
    }
    qsort(differences, rounds, sizeof(differences[0]), compare_doubles);
    double rank = floor((double)rounds / 2 - 0.98 * sqrt((double)rounds));
    uint32_t lower = rank > 0 ? (uint32_t)rank : 0;
    *low = differences[lower];
    *high = differences[rounds - 1 - lower];
}

static bool leaders_settled(const gki_race *race, const uint32_t *list, uint32_t n, uint32_t rounds)
{
    if (n < 2) {
        return true;
    }
    uint32_t first = list[0];
    for (uint32_t i = 1; i < n; i++) {
        if (race->racers[list[i]].seconds < race->racers[first].seconds) {
            first = list[i];
        }
    }
    int32_t second = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i] != first &&
            (second < 0 || race->racers[list[i]].seconds < race->racers[second].seconds)) {
            second = (int32_t)list[i];
        }
    }
    double low;
    double high;
    paired_interval(&race->racers[second], &race->racers[first], rounds, &low, &high);
    return low > 0 || (high - low) / 2 <= SETTLED * race->racers[first].seconds;
}

/* One round: every finalist once, in random order. A failure removes the racer. */
static gk_status run_round(gki_race *race, uint32_t *list, uint32_t n, uint32_t round)
{
    for (uint32_t i = 0; i < n; i++) {
        gki_racer *r = &race->racers[list[i]];
        double seconds = 0;
        gk_status status = time_racer(race, list[i], true, &seconds);
        if (status != GK_OK) {
            return status;
        }
        if (racing(r)) {
            r->rounds[round] = seconds;
        }
    }
    return GK_OK;
}

static gk_status run_finals(gki_race *race, uint32_t *rounds, bool *out_of_time)
{
    uint32_t list[FINALISTS + 2];
    gki_rng rng;
    gki_rng_seed(&rng, race->seed);
    uint32_t n = list_finalists(race, list);
    while (*rounds < GKI_RACE_ROUNDS && n > 0 && !*out_of_time) {
        shuffle(&rng, list, n);
        gk_status status = run_round(race, list, n, *rounds);
        if (status != GK_OK) {
            return status;
        }
        (*rounds)++;
        n = list_finalists(race, list);
        if (*rounds >= FEWEST_ROUNDS) {
            for (uint32_t i = 0; i < n; i++) {
                summarize(&race->racers[list[i]], race->racers[list[i]].rounds, *rounds);
            }
            if (*rounds >= MIN_ROUNDS && leaders_settled(race, list, n, *rounds)) {
                break;
            }
        }
        *out_of_time = stopped(race, "final", *rounds, GKI_RACE_ROUNDS);
    }
    race->settled = *rounds >= FEWEST_ROUNDS;
    return GK_OK;
}

/* --- the winner --- */

/* Among equals: what is known already, then what takes less of the device. */
static bool preferred(const gki_racer *a, const gki_racer *b)
{
    if (a->is_incumbent != b->is_incumbent) {
        return a->is_incumbent;
    }
    if (a->is_guess != b->is_guess) {
        return a->is_guess;
    }
    if (a->workspace != b->workspace) {
        return a->workspace < b->workspace;
    }
    if (a->smem != b->smem) {
        return a->smem < b->smem;
    }
    return false; /* the earlier one: better predicted */
}

static bool may_win(const gki_racer *r)
{
    return racing(r) && r->finalist && r->seconds > 0;
}

/* Beyond noise? Without finals, by a margin. */
static bool beats(const gki_race *race, const gki_racer *winner, const gki_racer *favourite,
                  uint32_t rounds)
{
    if (!race->settled) {
        double margin = UNSETTLED_MARGIN;
        const uint32_t samples =
            winner->n_samples < favourite->n_samples ? winner->n_samples : favourite->n_samples;
        if (samples >= FEWEST_SAMPLES) {
            const double scatter = SCATTER_MARGIN * (winner->spread + favourite->spread);
            margin = fmin(fmax(scatter, samples < MANY_SAMPLES ? 2 * TIE : TIE), margin);
        }
        return winner->seconds < favourite->seconds * (1 - margin);
    }
    double low;
    double high;
    paired_interval(favourite, winner, rounds, &low, &high);
    return low > 0 && winner->seconds < favourite->seconds * (1 - TIE);
}

static void choose_winner(gki_race *race, uint32_t rounds)
{
    double best = 0;
    for (uint32_t i = 0; i < race->count; i++) {
        const gki_racer *r = &race->racers[i];
        if (may_win(r) && (best <= 0 || r->seconds < best)) {
            best = r->seconds;
        }
    }
    for (uint32_t i = 0; i < race->count; i++) {
        const gki_racer *r = &race->racers[i];
        if (may_win(r) && r->seconds <= best * (1 + TIE) &&
            (race->winner < 0 || preferred(r, &race->racers[race->winner]))) {
            race->winner = (int32_t)i;
        }
    }
    if (race->winner < 0) {
        return;
    }
    /* The fastest favourite stays unless it is beaten for certain. */
    int32_t favourite = -1;
    for (uint32_t i = 0; i < race->count; i++) {
        const gki_racer *r = &race->racers[i];
        if (may_win(r) && favoured(r) &&
            (favourite < 0 || r->seconds < race->racers[favourite].seconds)) {
            favourite = (int32_t)i;
        }
    }
    if (favourite >= 0 && !favoured(&race->racers[race->winner]) &&
        !beats(race, &race->racers[race->winner], &race->racers[favourite], rounds)) {
        race->winner = favourite;
    }
}

static gk_status run_stages(gki_race *race, bool *out_of_time)
{
    static const struct {
        uint32_t samples;
        uint32_t of_long; /* samples where they take long, and therefore scatter little */
        double limit;
    } stages[] = {{1, 1, 2.0}, {3, 2, 1.5}, {10, 4, 1.15}};
    const double reserve = race->left != NULL ? FINALS_SHARE * race->left(race->user) : 0;
    bool refused;
    do {
        gk_status status = GK_OK;
        for (size_t i = 0; i < 3 && status == GK_OK && !*out_of_time; i++) {
            bool lengthy = best_seconds(race) > LENGTHY;
            status = run_stage(race, lengthy ? stages[i].of_long : stages[i].samples,
                               stages[i].limit, reserve, out_of_time);
        }
        if (status != GK_OK) {
            return status;
        }
        /* A last look costs time, too: when there is none left, one besides the favoured must do.
         */
        refused = false;
        status = choose_finalists(race, *out_of_time ? 1 : FINALISTS, &refused);
        if (status != GK_OK) {
            return status;
        }
        if (refused && !*out_of_time) {
            take_back(race);
        }
    } while (refused && !*out_of_time);
    return GK_OK;
}

gk_status gki_race_run(gki_race *race)
{
    bool out_of_time = false;
    uint32_t rounds = 0;
    race->winner = -1;
    race->settled = false;
    gk_status status = run_stages(race, &out_of_time);
    if (status == GK_OK && !out_of_time) {
        status = run_finals(race, &rounds, &out_of_time);
    }
    if (status != GK_OK) {
        return status;
    }
    choose_winner(race, rounds);
    for (uint32_t i = 0; i < race->count; i++) {
        gki_racer *r = &race->racers[i];
        if (racing(r) && r->seconds > 0) {
            r->status = GKI_TRIAL_OK;
        }
    }
    return GK_OK;
}
