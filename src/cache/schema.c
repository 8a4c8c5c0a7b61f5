#include "cache/schema.h"

#include <stddef.h>

/*
 * Columns that are read back hold no constraint beyond their key: what is found there is checked
 * on every read anyway. A config is text, never an index into a list that may change.
 * meta.writes is counted up in every transaction, so that each commit in a write-ahead log holds
 * the page with meta.generation, which tells whose log it is.
 */
static const char *const steps[GKI_SCHEMA_VERSION] = {
    "CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK(id = 1), generation TEXT, writes INTEGER);"
    "INSERT INTO meta VALUES(1, lower(hex(randomblob(16))), 0);"
    "CREATE TABLE env(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);"
    "CREATE TABLE problem(id INTEGER PRIMARY KEY, op TEXT NOT NULL, key TEXT NOT NULL,"
    " UNIQUE(op, key));"
    "CREATE TABLE trial(problem INTEGER NOT NULL REFERENCES problem(id),"
    " env INTEGER NOT NULL REFERENCES env(id), variant TEXT NOT NULL, config TEXT NOT NULL,"
    " status TEXT, seconds REAL, spread REAL, max_error REAL, created INTEGER,"
    " PRIMARY KEY(problem, env, variant, config)) WITHOUT ROWID;"
    "CREATE TABLE choice(problem INTEGER NOT NULL REFERENCES problem(id),"
    " env INTEGER NOT NULL REFERENCES env(id), variant TEXT, config TEXT, seconds REAL,"
    " spread REAL, created INTEGER, PRIMARY KEY(problem, env));"
    "CREATE TABLE kernel(id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, name TEXT,"
    " size INTEGER, used INTEGER, sha256 BLOB, registers INTEGER, spill_bytes INTEGER,"
    " stack_bytes INTEGER, serialized INTEGER, code BLOB);"
    "CREATE INDEX kernel_used ON kernel(used, size);"
    "CREATE TABLE lease(problem INTEGER NOT NULL REFERENCES problem(id),"
    " env INTEGER NOT NULL REFERENCES env(id), owner TEXT, expires INTEGER,"
    " PRIMARY KEY(problem, env)) WITHOUT ROWID;"
    "CREATE TABLE miss(problem INTEGER NOT NULL REFERENCES problem(id),"
    " env INTEGER NOT NULL REFERENCES env(id), calls INTEGER, last INTEGER,"
    " PRIMARY KEY(problem, env)) WITHOUT ROWID;",
};

const char *gki_schema_step(int from)
{
    return steps[from];
}

/* ?1 op, ?2 problem, ?3 environment, wherever a statement is about one key. */
#define FOR_KEY " FROM problem p, env e WHERE p.op = ?1 AND p.key = ?2 AND e.key = ?3"
#define WITH_KEY                                                                                   \
    " problem = (SELECT id FROM problem WHERE op = ?1 AND key = ?2)"                               \
    " AND env = (SELECT id FROM env WHERE key = ?3)"

static const char *const texts[GKI_SQL_COUNT] = {
    [GKI_SQL_BEGIN] = "BEGIN IMMEDIATE",
    [GKI_SQL_COUNT_WRITE] = "UPDATE meta SET writes = writes + 1",
    [GKI_SQL_COMMIT] = "COMMIT",
    [GKI_SQL_ROLLBACK] = "ROLLBACK",
    [GKI_SQL_ADD_PROBLEM] = "INSERT OR IGNORE INTO problem(op, key) VALUES(?1, ?2)",
    [GKI_SQL_ADD_ENV] = "INSERT OR IGNORE INTO env(key) VALUES(?1)",
    [GKI_SQL_CHOICE_GET] =
        "SELECT c.variant, c.config, c.seconds, c.spread, c.created FROM problem p"
        " JOIN env e ON e.key = ?3 JOIN choice c ON c.problem = p.id AND c.env = e.id"
        " WHERE p.op = ?1 AND p.key = ?2",
    [GKI_SQL_CHOICE_SEED] =
        "SELECT c.variant, c.config, c.seconds, c.spread, c.created FROM problem p"
        " JOIN choice c ON c.problem = p.id WHERE p.op = ?1 AND p.key = ?2"
        " ORDER BY c.created DESC, c.env DESC",
    [GKI_SQL_CHOICE_ADD] =
        "INSERT OR IGNORE INTO choice(problem, env, variant, config, seconds, spread, created)"
        " SELECT p.id, e.id, ?4, ?5, ?6, ?7, ?8" FOR_KEY,
    [GKI_SQL_CHOICE_SET] =
        "INSERT OR REPLACE INTO choice(problem, env, variant, config, seconds, spread, created)"
        " SELECT p.id, e.id, ?4, ?5, ?6, ?7, ?8" FOR_KEY,
    [GKI_SQL_CHOICE_DROP] = "DELETE FROM choice WHERE" WITH_KEY,
    [GKI_SQL_CHOICE_LIST] =
        "SELECT c.variant, c.config, c.seconds, c.spread, c.created, p.op, p.key, e.key,"
        " (SELECT count(*) FROM trial t WHERE t.problem = c.problem AND t.env = c.env)"
        " FROM choice c JOIN problem p ON p.id = c.problem JOIN env e ON e.id = c.env"
        " WHERE ?1 IS NULL OR p.op = ?1",
    [GKI_SQL_TRIAL_SET] =
        "INSERT OR REPLACE INTO trial(problem, env, variant, config, status, seconds, spread,"
        " max_error, created) SELECT p.id, e.id, ?4, ?5, ?6, ?7, ?8, ?9, ?10" FOR_KEY,
    [GKI_SQL_TRIAL_LIST] =
        "SELECT t.variant, t.config, t.status, t.seconds, t.spread, t.max_error FROM problem p"
        " JOIN env e ON e.key = ?3 JOIN trial t ON t.problem = p.id AND t.env = e.id"
        " WHERE p.op = ?1 AND p.key = ?2",
    [GKI_SQL_KERNEL_GET] = "SELECT code, sha256, registers, spill_bytes, stack_bytes, serialized,"
                           " used FROM kernel WHERE key = ?1",
    [GKI_SQL_KERNEL_SET] =
        "INSERT OR REPLACE INTO kernel(key, name, size, used, sha256, registers, spill_bytes,"
        " stack_bytes, serialized, code) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [GKI_SQL_KERNEL_USE] = "UPDATE kernel SET used = ?2 WHERE key = ?1",
    [GKI_SQL_KERNEL_DROP] = "DELETE FROM kernel WHERE key = ?1",
    [GKI_SQL_KERNEL_BYTES] = "SELECT coalesce(sum(size), 0) FROM kernel",
    /* The latest one stays whatever its size. */
    [GKI_SQL_KERNEL_TRIM] = "DELETE FROM kernel WHERE id IN (SELECT id FROM (SELECT id, size,"
                            " sum(size) OVER (ORDER BY used DESC, id DESC) AS total FROM kernel)"
                            " WHERE total > ?1 AND total > size)",
    /* ?4 owner, ?5 expires, ?6 now, ?7 the latest believable expiry: clocks are set back, too. */
    [GKI_SQL_LEASE_TAKE] =
        "INSERT INTO lease(problem, env, owner, expires) SELECT p.id, e.id, ?4, ?5" FOR_KEY
        " ON CONFLICT(problem, env) DO UPDATE SET owner = excluded.owner,"
        " expires = excluded.expires WHERE owner IS NULL OR owner = excluded.owner"
        " OR typeof(expires) <> 'integer' OR expires <= ?6 OR expires > ?7",
    [GKI_SQL_LEASE_END] = "DELETE FROM lease WHERE" WITH_KEY " AND owner = ?4",
    [GKI_SQL_MISS_ADD] =
        "INSERT INTO miss(problem, env, calls, last) SELECT p.id, e.id, 1, ?4" FOR_KEY
        " ON CONFLICT(problem, env) DO UPDATE SET calls = calls + 1, last = excluded.last",
    [GKI_SQL_MISS_DROP] = "DELETE FROM miss WHERE" WITH_KEY,
    [GKI_SQL_MISS_LIST] = "SELECT p.op, p.key, sum(m.calls) FROM miss m"
                          " JOIN problem p ON p.id = m.problem GROUP BY p.id",
};

const char *gki_sql_text(gki_sql id)
{
    return texts[id];
}
