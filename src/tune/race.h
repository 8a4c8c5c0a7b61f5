/*
 * Who is fastest? Stages drop what is clearly slower, the finals compare the rest in interleaved
 * rounds. Knows nothing of kernels: times come from a callback, so tests can script them.
 */
#ifndef GKI_RACE_H
#define GKI_RACE_H

#include <gk/base.h>

enum { GKI_RACE_ROUNDS = 40, GKI_RACE_SAMPLES = 16, GKI_RACE_RUNS = 256 };

typedef struct gki_racer {
    /* set by the caller */
    double predicted;
    int64_t workspace;
    int64_t smem;
    bool is_guess;     /* always reaches the finals, and is not beaten by noise */
    bool is_incumbent; /* the stored answer: likewise */

    /* results */
    const char *status; /* GKI_TRIAL_*; NULL while it is racing or was never timed */
    double seconds;     /* median; 0 = never timed */
    double spread;      /* median absolute deviation over median */
    bool finalist;

    double samples[GKI_RACE_SAMPLES]; /* of the stages */
    uint32_t n_samples;
    double rounds[GKI_RACE_ROUNDS]; /* of the finals; the same index is the same round for all */
} gki_racer;

typedef struct gki_race {
    gki_racer *racers;
    uint32_t count;
    uint64_t seed; /* of the order within the rounds */
    void *user;

    /*
     * Times `runs` launches of the racer back to back, and gives the seconds of one. warm: the
     * kernel has not run lately, so let it run once before. GK_ERR_LOST, GK_ERR_CANCELLED and
     * GK_ERR_NOMEM end the race; any other failure ends the racer's.
     */
    gk_status (*time)(void *user, uint32_t racer, uint32_t runs, bool warm, double *seconds);
    /*
     * Asked once for each racer that may win, before the finals: the last look at whether it is
     * right. *status is GKI_TRIAL_OK or why not. NULL = all are right. Failures end the race.
     */
    gk_status (*admit)(void *user, uint32_t racer, const char **status);
    /* Asked between timings: true = out of time, settle with what is known. NULL = never. */
    bool (*stop)(void *user, const char *stage, uint32_t done, uint32_t total, double best);
    /* Seconds until stop() will say so. Of those, some are kept for the finals. NULL = no limit. */
    double (*left)(void *user);

    /* results */
    int32_t winner; /* -1: none could be timed */
    bool settled;   /* the finals had enough rounds to tell who is faster */
} gki_race;

gk_status gki_race_run(gki_race *race);

/* Median and relative median absolute deviation. values is reordered. count 0 gives zeros. */
void gki_median(double *values, uint32_t count, double *median, double *spread);

/* How many launches one timing takes so that it lasts at least 500 us, at most GKI_RACE_RUNS. */
uint32_t gki_race_runs(double estimate);

#endif
