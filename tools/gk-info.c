/* gk-info: devices, compilers, operations and their variants, paths. */
#include <getopt.h>
#include <string.h>

#include "cli.h"

static const char help[] =
    "usage: gk-info [--device D] [--cache FILE] [--help] [--version]\n"
    "Prints the devices and compilers found, the operations with their variants, and the cache "
    "file.\n"
    "--device D shows one (cuda, cuda:N, cpu). Exit status: 0 if it (or, without the option, any)\n"
    "can be used.\n";

static bool show_device(const char *name, const char *cache)
{
    gk_context *ctx = NULL;
    gk_context_options options = {.struct_size = sizeof(options), .cache_path = cache};
    if (gk_context_create(&ctx, name, &options) != GK_OK) {
        printf("%-8s not usable: %s\n", name, gk_error_last()->message);
        return false;
    }
    gk_device_info info;
    gk_statistics stats = {.struct_size = sizeof(stats)};
    bool good = gk_device_info_get(ctx, &info) == GK_OK && gk_stats(ctx, &stats) == GK_OK;
    if (good) {
        printf("%-8s %s, compute capability %d.%d, %d SMs, %lld MiB, %lld KiB shared memory a "
               "block, %lld MiB L2\n",
               name, info.name, info.cc / 10, info.cc % 10, info.sm_count,
               (long long)(info.memory_bytes >> 20), (long long)(info.smem_per_block_optin >> 10),
               (long long)(info.l2_bytes >> 20));
        printf("         compiles for %s with %s\n", info.arch, info.compiler);
        printf("         cache: %s%s%s\n",
               stats.cache_path[0] != '\0' ? stats.cache_path : "in memory only",
               stats.cache_degraded[0] != '\0' ? ": " : "", stats.cache_degraded);
    }
    gk_context_destroy(&ctx);
    return good;
}

static void show_ops(void)
{
    const gk_op_desc *op;
    for (uint32_t i = 0; (op = gk_op_at(i)) != NULL; i++) {
        printf("op       %s (", op->name);
        for (uint32_t d = 0; d < op->n_dims; d++) {
            printf("%s%s", d == 0 ? "" : "x", op->dim_names[d]);
        }
        printf(")");
        for (uint32_t p = 0; p < op->n_presets; p++) {
            printf(", also as %s", op->presets[p].name);
        }
        printf("\n");
        for (uint32_t v = 0; v < op->n_variants; v++) {
            const gk_variant *variant = op->variants[v];
            printf("         %-8s %s, compute capability %d.%d and later:", variant->name,
                   variant->source, variant->min_cc / 10, variant->min_cc % 10);
            for (uint32_t t = 0; t < variant->n_params; t++) {
                printf(" %s", variant->params[t].name);
            }
            printf("\n");
        }
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"device", required_argument, NULL, 'D'},
                                            {"cache", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    const char *device = NULL;
    const char *cache = NULL;
    cli_start("gk-info");
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'D':
            device = optarg;
            break;
        case 'c':
            cache = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return cli_finish(0);
        case 'v':
            printf("gk-info %s\n", gk_version_string());
            return cli_finish(0);
        default:
            return cli_error(EXIT_USAGE, "the options are wrong");
        }
    }
    if (optind < argc) {
        return cli_error(EXIT_USAGE, "\"%s\" is not an option", argv[optind]);
    }
    printf("gk       %s\n", gk_version_string());
    bool good;
    if (device != NULL) {
        good = show_device(device, cache);
    } else {
        good = show_device("cuda", cache);
        char name[16];
        for (int i = 1; i < 64; i++) {
            snprintf(name, sizeof(name), "cuda:%d", i);
            gk_context *probe = NULL;
            gk_context_options none = {.struct_size = sizeof(none), .cache_path = ":memory:"};
            if (gk_context_create(&probe, name, &none) != GK_OK) {
                break;
            }
            gk_context_destroy(&probe);
            show_device(name, cache);
        }
        good = show_device("cpu", cache) || good;
    }
    show_ops();
    return cli_finish(good ? 0 : EXIT_SOME_FAILED);
}
