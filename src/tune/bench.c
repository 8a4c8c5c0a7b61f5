/* The problems on which candidates run: the one that is tuned, and a small one of its class. */
#include <string.h>

#include "base/error.h"
#include "tune/session.h"

static const int64_t REDUCED_FLOPS = 20000000;
static const int64_t EMULATED_FLOPS = 2000000;
static const uint64_t SEED = 0x676b;

/* The same but for its dims? */
static bool same_class(const gk_problem *a, const gk_problem *b)
{
    return memcmp(a->dtype, b->dtype, sizeof(a->dtype)) == 0 &&
           memcmp(a->layout, b->layout, sizeof(a->layout)) == 0 &&
           memcmp(a->align, b->align, sizeof(a->align)) == 0 &&
           memcmp(a->attrs, b->attrs, sizeof(a->attrs)) == 0 && a->text == b->text;
}

/* The op's smaller call, with addresses of the call's alignment that are never used. False if it
 * has none. */
static bool reduce(const gki_session *s, gk_tensor *tensors, gk_call *call, gk_problem *problem)
{
    const int64_t flops = s->info.is_emulated ? EMULATED_FLOPS : REDUCED_FLOPS;
    memset(tensors, 0, GK_MAX_ARGS * sizeof(tensors[0]));
    memset(call, 0, sizeof(*call));
    memset(problem, 0, sizeof(*problem));
    if (s->op->reduce == NULL || !s->op->reduce(s->call, flops, tensors, call)) {
        return false;
    }
    for (uint32_t i = 0; i < s->op->n_args; i++) {
        if (call->args[i] != NULL) {
            uintptr_t misalignment = (uintptr_t)s->call->args[i]->data % 256;
            /* Distinct and far apart, so that no two operands overlap. */
            const uintptr_t address = ((uintptr_t)(i + 1) << 40) + misalignment;
            tensors[i].data = (void *)address;
        }
    }
    problem->op = s->problem.op;
    gk_error saved;
    gki_error_save(&saved);
    if (s->op->infer(call, problem) != GK_OK) {
        gki_logf(s->log, GK_LOG_INFO, "tune: the reduced call of %s is refused: %s", s->op->name,
                 gk_error_last()->message);
        (void)gki_error_restore(&saved);
        return false;
    }
    if (!same_class(problem, &s->problem)) {
        gki_logf(s->log, GK_LOG_INFO, "tune: the reduced call of %s is of another class",
                 s->op->name);
        return false;
    }
    return true;
}

static gk_status make(const gki_session *s, gki_bench *bench, const gk_call *call,
                      const gk_problem *problem, uint32_t sets)
{
    bench->problem = *problem;
    gk_status status = gki_operands_create(&bench->operands, s->device, s->stream, s->op, call,
                                           problem, SEED, sets);
    if (status == GK_OK) {
        status = gki_verifier_create(&bench->verifier, bench->operands);
    }
    return status;
}

static bool is_small(const gki_session *s)
{
    double flops = 0;
    double bytes = 0;
    s->op->work(&s->problem, &flops, &bytes);
    return gki_verifier_fits(s->op, s->call, &s->problem) &&
           (!s->info.is_emulated || flops <= (double)EMULATED_FLOPS);
}

bool gki_bench_reduced_problem(const gki_session *s, gk_problem *out)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    return !is_small(s) && reduce(s, tensors, &call, out);
}

gk_status gki_bench_prepare(gki_session *s)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    gk_problem problem;
    gk_status status = GK_OK;
    if (!s->no_reduced && !is_small(s) && reduce(s, tensors, &call, &problem)) {
        status = make(s, &s->reduced, &call, &problem, 1);
        if (s->info.is_emulated) {
            return status;
        }
    }
    if (status == GK_OK) {
        status = make(s, &s->real, s->call, &s->problem, 0);
    }
    return status;
}

void gki_bench_free(gki_bench *bench)
{
    gki_verifier_destroy(&bench->verifier);
    gki_operands_destroy(&bench->operands);
}
