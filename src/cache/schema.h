/* The database's tables and every statement that is run on them. */
#ifndef GKI_CACHE_SCHEMA_H
#define GKI_CACHE_SCHEMA_H

/* "gkdb" in the file's header says that the file is gk's; the version grows with the schema. */
enum { GKI_APPLICATION_ID = 0x676b6462, GKI_SCHEMA_VERSION = 1 };

typedef enum gki_sql {
    GKI_SQL_BEGIN,
    GKI_SQL_COUNT_WRITE,
    GKI_SQL_COMMIT,
    GKI_SQL_ROLLBACK,
    GKI_SQL_ADD_PROBLEM,
    GKI_SQL_ADD_ENV,
    GKI_SQL_CHOICE_GET,
    GKI_SQL_CHOICE_SEED,
    GKI_SQL_CHOICE_ADD,
    GKI_SQL_CHOICE_SET,
    GKI_SQL_CHOICE_DROP,
    GKI_SQL_CHOICE_LIST,
    GKI_SQL_TRIAL_SET,
    GKI_SQL_TRIAL_LIST,
    GKI_SQL_KERNEL_GET,
    GKI_SQL_KERNEL_SET,
    GKI_SQL_KERNEL_USE,
    GKI_SQL_KERNEL_DROP,
    GKI_SQL_KERNEL_BYTES,
    GKI_SQL_KERNEL_TRIM,
    GKI_SQL_LEASE_TAKE,
    GKI_SQL_LEASE_END,
    GKI_SQL_MISS_ADD,
    GKI_SQL_MISS_DROP,
    GKI_SQL_MISS_LIST,
    GKI_SQL_COUNT
} gki_sql;

const char *gki_sql_text(gki_sql id);

/* The statements that turn version `from` into the next one. */
const char *gki_schema_step(int from);

#endif
