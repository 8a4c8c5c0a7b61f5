/* Memos by themselves: told apart by every field of a call, in all sizes, more than there is room
 * for. */
#include "support/gk_test.h"

#include <string.h>

#include "api/memo.h"
#include "base/alloc.h"

enum { ARGS = 4, ATTRS = 3, RANK = 3, FITS = 176, LARGEST = 28 * 64 };

static const gk_op_desc plain_op = {.name = "plain", .n_args = ARGS, .n_attrs = ATTRS};
static const gk_op_desc text_op = {.name = "text", .n_args = ARGS, .text_name = "text"};
static const gk_variant no_maps = {.name = "no_maps"};
static const gk_variant maps = {.name = "maps", .n_maps = 2};

typedef struct item {
    gk_tensor tensors[ARGS];
    gk_call call;
    gki_entry entry;
    _Alignas(64) unsigned char args[GK_MAX_KERNEL_ARGS];
    gki_kernel_launch launch;
    gki_memo_key key;
} item;

/* A call of all arguments but the third, all numbers different. */
static void item_init(item *it, const gk_op_desc *op, size_t args_size)
{
    memset(it, 0, sizeof(*it));
    for (int i = 0; i < ARGS; i++) {
        gk_tensor *t = &it->tensors[i];
        t->data = (void *)(uintptr_t)(0x7f0000001000u + 0x100u * (unsigned)i);
        t->dtype = GK_F32;
        t->rank = RANK;
        for (int axis = 0; axis < RANK; axis++) {
            t->shape[axis] = 100 * i + axis + 1;
            t->stride[axis] = 1000 * i + 10 * axis + 1;
        }
        it->call.args[i] = i != 2 ? t : NULL;
    }
    for (int i = 0; i < ATTRS; i++) {
        it->call.attrs[i] = i;
    }
    it->entry.op = op;
    it->entry.variant = &no_maps;
    for (size_t i = 0; i < sizeof(it->args); i++) {
        it->args[i] = (unsigned char)(i * 7 + 1);
    }
    it->launch = (gki_kernel_launch){.module = (gki_module *)&it->entry,
                                     .grid = INT32_MAX,
                                     .threads = 1024,
                                     .cluster = 16,
                                     .smem = 232448,
                                     .args = it->args,
                                     .args_size = args_size};
    it->key = (gki_memo_key){.owner = 10, .replacements = 20, .hash = 0x12345678};
}

static void keep(gki_memos *memos, const item *it)
{
    gki_memo_keep(memos, &it->key, &it->entry, &it->call, NULL, &it->launch);
}

static const gki_memo *find(gki_memos *memos, const item *it)
{
    bool seen;
    return gki_memo_find(memos, &it->key, it->entry.op, &it->call, &seen);
}

/* Whether the item's launch is found, exactly. */
static bool is_kept(gki_memos *memos, const item *it)
{
    const gki_memo *memo = find(memos, it);
    gki_kernel_launch got;
    memset(&got, 0x5a, sizeof(got));
    return memo != NULL && gki_memo_launch(memo, NULL, &got) && got.module == it->launch.module &&
           got.grid == it->launch.grid && got.threads == it->launch.threads &&
           got.cluster == it->launch.cluster && got.cooperative == it->launch.cooperative &&
           got.overlap == it->launch.overlap && got.smem == it->launch.smem &&
           got.args_size == it->launch.args_size &&
           (uintptr_t)got.args % (it->entry.variant->n_maps > 0 ? 64 : 16) == 0 &&
           memcmp(got.args, it->args, got.args_size) == 0;
}

#define DIFFERS(field, value)                                                                      \
    do {                                                                                           \
        item other = it;                                                                           \
        for (int arg = 0; arg < ARGS; arg++) {                                                     \
            other.call.args[arg] = it.call.args[arg] != NULL ? &other.tensors[arg] : NULL;         \
        }                                                                                          \
        assert_true(is_kept(&memos, &other));                                                      \
        other.field = (value);                                                                     \
        assert_null(find(&memos, &other));                                                         \
    } while (0)

/* All these calls have one hash. */
static void test_every_field_counts(void **state)
{
    gki_memos memos = {0};
    item it;
    (void)state;
    item_init(&it, &plain_op, FITS);
    keep(&memos, &it);
    assert_true(is_kept(&memos, &it));
    DIFFERS(key.owner, 11);
    DIFFERS(key.replacements, 21);
    DIFFERS(key.hash, 0x12345679);
    DIFFERS(key.hash, 0x13345678);
    for (int i = 0; i < ATTRS; i++) {
        DIFFERS(call.attrs[i], 0.5);
    }
    DIFFERS(call.attrs[0], -0.0);
    DIFFERS(call.args[0], NULL);
    DIFFERS(call.args[2], &it.tensors[2]);
    DIFFERS(call.args[3], NULL);
    for (int i = 0; i < ARGS; i++) {
        if (it.call.args[i] == NULL) {
            continue;
        }
        DIFFERS(tensors[i].data, (void *)(uintptr_t)(0x7f0000001000u + 0x100u * (unsigned)i + 1));
        DIFFERS(tensors[i].data, NULL);
        DIFFERS(tensors[i].dtype, GK_F16);
        DIFFERS(tensors[i].dtype, GK_F32 + (1 << 8));
        DIFFERS(tensors[i].dtype, GK_F32 + (1 << 16));
        DIFFERS(tensors[i].dtype, -1);
        DIFFERS(tensors[i].rank, RANK - 1);
        DIFFERS(tensors[i].rank, RANK + 1);
        DIFFERS(tensors[i].rank, RANK + (1 << 8));
        DIFFERS(tensors[i].rank, -RANK);
        for (int axis = 0; axis < RANK; axis++) {
            DIFFERS(tensors[i].shape[axis], it.tensors[i].shape[axis] + 1);
            DIFFERS(tensors[i].shape[axis], it.tensors[i].shape[axis] + (INT64_C(1) << 32));
            DIFFERS(tensors[i].shape[axis], it.tensors[i].shape[axis] | INT64_MIN);
            DIFFERS(tensors[i].stride[axis], it.tensors[i].stride[axis] + 1);
            DIFFERS(tensors[i].stride[axis], it.tensors[i].stride[axis] + (INT64_C(1) << 32));
            DIFFERS(tensors[i].stride[axis], it.tensors[i].stride[axis] | INT64_MIN);
        }
        for (int word = 0; word < 4; word++) {
            DIFFERS(tensors[i].reserved[word], 1);
        }
    }
    assert_true(is_kept(&memos, &it));
    gki_memos_free(&memos);
}

/* The text counts by its contents; there may be none, in a call that is wrong. */
static void test_texts(void **state)
{
    gki_memos memos = {0};
    item it;
    char text[] = "x0 + 1";
    (void)state;
    item_init(&it, &text_op, 64);
    it.call.text = "x0 + 1";
    keep(&memos, &it);
    it.call.text = text;
    assert_true(is_kept(&memos, &it));
    text[5] = '2';
    assert_null(find(&memos, &it));
    text[5] = '\0';
    assert_null(find(&memos, &it));
    it.call.text = "x0 + 1 ";
    assert_null(find(&memos, &it));
    it.call.text = NULL;
    assert_null(find(&memos, &it));
    gki_memos_free(&memos);
}

/* Whatever does not fit is not kept, and never kept cut short. */
static void test_what_does_not_fit(void **state)
{
    gki_memos memos = {0};
    item it;
    (void)state;
    item_init(&it, &plain_op, 64);
    it.tensors[0].shape[1] = INT64_C(1) << 32;
    keep(&memos, &it);
    assert_null(find(&memos, &it));
    it.tensors[0].shape[1] = UINT32_MAX;
    it.tensors[3].stride[0] = -1;
    keep(&memos, &it);
    assert_null(find(&memos, &it));
    it.tensors[3].stride[0] = UINT32_MAX;
    it.launch.grid = INT64_C(1) << 31;
    keep(&memos, &it);
    assert_null(find(&memos, &it));
    it.launch.grid = 1;
    it.launch.cluster = 256;
    keep(&memos, &it);
    assert_null(find(&memos, &it));
    it.launch.cluster = 1;
    keep(&memos, &it);
    assert_true(is_kept(&memos, &it));
    gki_memos_free(&memos);
}

static void test_all_sizes(void **state)
{
    static char text[2000];
    gki_memos memos = {0};
    item it;
    (void)state;
    for (size_t args = 0; args <= GK_MAX_KERNEL_ARGS; args += 64) {
        for (size_t length = 0; length < sizeof(text); length += 111) {
            const size_t align = args % 128 == 0 ? 64 : 16;
            /* A line, three addresses with three axes each, the text. */
            const size_t before = 64 + 3 * 8 * (1 + RANK) + length + 1;
            item_init(&it, &text_op, args);
            it.entry.variant = align == 64 ? &maps : &no_maps;
            it.launch.cooperative = length % 2 != 0;
            it.launch.overlap = length % 3 == 0;
            it.key.hash = (uint32_t)(args * 1000 + length) * 0x9e3779b1u;
            memset(text, 'x', length);
            text[length] = '\0';
            it.call.text = text;
            keep(&memos, &it);
            assert_int_equal(is_kept(&memos, &it),
                             (before + align - 1) / align * align + args <= LARGEST);
        }
    }
    gki_memos_free(&memos);
}

/* --- many --- */

/* The i-th of calls that differ in one address, and of launches that do. */
static void item_set(item *it, uint32_t i)
{
    const void *data = (const void *)(uintptr_t)(16u * (i + 1));
    memcpy(&it->tensors[0].data, &data, sizeof(data));
    memcpy(it->args, &data, sizeof(data));
    it->key.hash = (i + 1) * 0x9e3779b1u;
}

static uint32_t count_kept(gki_memos *memos, item *it, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        item_set(it, i);
        assert_true(find(memos, it) == NULL || is_kept(memos, it));
        kept += find(memos, it) != NULL;
    }
    return kept;
}

static void keep_many(gki_memos *memos, item *it, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        item_set(it, i);
        keep(memos, it);
        assert_true(is_kept(memos, it));
    }
}

static void test_growth(void **state)
{
    gki_memos memos = {0};
    item it;
    (void)state;
    item_init(&it, &plain_op, FITS);
    for (int round = 0; round < 6; round++) {
        keep_many(&memos, &it, 10000);
    }
    assert_in_range(count_kept(&memos, &it, 10000), 9900, 10000);
    keep_many(&memos, &it, 50000);
    assert_in_range(count_kept(&memos, &it, 50000), 12000, 16384);
    const int64_t allocations = gki_alloc_count();
    keep_many(&memos, &it, 50000);
    assert_int_equal(gki_alloc_count() - allocations, 0);
    gki_memos_free(&memos);
}

/* Of calls with one hash the last one is kept. */
static void test_one_hash(void **state)
{
    gki_memos memos = {0};
    item it;
    (void)state;
    item_init(&it, &plain_op, FITS);
    for (uint32_t i = 0; i < 100; i++) {
        item_set(&it, i);
        it.key.hash = 7;
        keep(&memos, &it);
        assert_true(is_kept(&memos, &it));
        item_set(&it, i / 2);
        it.key.hash = 7;
        assert_int_equal(find(&memos, &it) != NULL, i == 0);
    }
    gki_memos_free(&memos);
}

/* What free memory holds from before, next to a memo with the tag of one that is asked for. */
static void test_old_memory(void **state)
{
    gki_memos memos = {0};
    item it;
    (void)state;
    item_init(&it, &plain_op, FITS);
    for (int round = 0; round < 50; round++) {
        it.key.hash = 0x01100000;
        keep(&memos, &it);
        gki_memos_free(&memos);
        it.key.hash = 0x01000000;
        keep(&memos, &it);
        it.key.hash = 0x01100000;
        assert_null(find(&memos, &it));
        gki_memos_free(&memos);
    }
}

/* A mark tells of a call, and costs few that are kept their place. */
static void test_marks(void **state)
{
    gki_memos memos = {0};
    item it;
    bool seen = true;
    (void)state;
    item_init(&it, &plain_op, FITS);
    assert_null(gki_memo_find(&memos, &it.key, &plain_op, &it.call, &seen));
    assert_false(seen);
    gki_memo_mark(&memos, it.key.hash);
    assert_null(gki_memo_find(&memos, &it.key, &plain_op, &it.call, &seen));
    assert_true(seen);
    keep(&memos, &it);
    assert_true(is_kept(&memos, &it));
    keep_many(&memos, &it, 50000);
    const uint32_t before = count_kept(&memos, &it, 50000);
    for (uint32_t i = 0; i < 10000; i++) {
        gki_memo_mark(&memos, i * 0x85ebca6bu);
    }
    assert_in_range(count_kept(&memos, &it, 50000), before - 1500, before);
    gki_memos_free(&memos);
}

static void test_scratch_memory(void **state)
{
    gki_memos memos = {0};
    const gki_workspace space = {.stream = (void *)(uintptr_t)0x100};
    const gki_workspace of_no_thread = {.stream = (void *)(uintptr_t)2, .thread = UINT64_MAX};
    gki_kernel_launch launch;
    item it;
    (void)state;
    item_init(&it, &plain_op, FITS);
    gki_memo_keep(&memos, &it.key, &it.entry, &it.call, &space, &it.launch);
    assert_true(gki_memo_launch(find(&memos, &it), (void *)(uintptr_t)0x100, &launch));
    assert_false(gki_memo_launch(find(&memos, &it), (void *)(uintptr_t)0x200, &launch));
    assert_false(gki_memo_launch(find(&memos, &it), NULL, &launch));
    gki_memo_keep(&memos, &it.key, &it.entry, &it.call, &of_no_thread, &it.launch);
    assert_false(gki_memo_launch(find(&memos, &it), (void *)(uintptr_t)2, &launch));
    gki_memos_free(&memos);
}

static void test_no_memory(void **state)
{
    item it;
    (void)state;
    item_init(&it, &plain_op, FITS);
    for (int64_t n = 1; n < 12; n++) {
        gki_memos memos = {0};
        gki_alloc_fail_at(n);
        for (uint32_t i = 0; i < 3000; i++) {
            item_set(&it, i);
            gki_memo_mark(&memos, it.key.hash + 1);
            keep(&memos, &it);
            assert_true(is_kept(&memos, &it) || n == 1);
        }
        gki_alloc_fail_at(0);
        (void)count_kept(&memos, &it, 3000);
        gki_memos_free(&memos);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_counts),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_all_sizes),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_one_hash),
        cmocka_unit_test(test_old_memory),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_scratch_memory),
        cmocka_unit_test(test_no_memory),
    };
    return GK_TEST_MAIN(tests);
}
