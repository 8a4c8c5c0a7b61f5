/* What the parts of gk-tune share. */
#ifndef TUNE_H
#define TUNE_H

#include "cli.h"

typedef struct tune_options {
    cli_options common;
    gk_tune_options tune;
    double jobs;
    bool replace;
} tune_options;

/* Tunes the problems of the words; gives the exit status. */
int tune_warm(const tune_options *options, int argc, char **argv);

#endif
