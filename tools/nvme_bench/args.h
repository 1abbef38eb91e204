/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_ARGS_H
#define HOISTWAY_TOOLS_NVME_BENCH_ARGS_H
/* This header holds what the user asked for. */
#include "cli/options/options.h"
#include "nvme_bench/result.h"

#define NB_MAX_LIST 8u
struct nb_list {
    uint32_t count;
    uint32_t values[NB_MAX_LIST];
};

enum { NB_RECOMPUTE_ON = 1, NB_RECOMPUTE_OFF = 2 };
enum { NB_PRECISION_BF16 = 1, NB_PRECISION_FP32 = 2, NB_PRECISION_FP16 = 3 };

struct nb_args {
    struct cli_operands paths;
    /* measuring */
    bool quick, force;
    uint64_t size_bytes, sustain_bytes; /* 0: default */
    const char *blocks_text, *depths_text, *threads_text;
    struct nb_list blocks, depths, threads;
    double idle_s; /* < 0: default */
    double case_s; /* longest time of a case; 0: default */
    const char *io_fault;
    int io; /* enum hst_aio_backend */
    /* planning */
    const char *plan, *endurance;
    double target_percent, gpu_tflops;
    uint32_t gpus;
    uint64_t tokens, seq_len;
    int precision, recompute;
    bool overlap;
    double states, weights; /* shares on the drives */
    uint64_t link, dram;    /* bytes/s; 0: not counted */
    double endurance_bytes; /* of one drive; 0: not given */
    /* in and out */
    const char *from, *html;
    bool compare, json;
};

/** Reads argv (without the program's name). E401 to E403. */
int nb_args_parse(int argc, char *const *argv, struct nb_args *args, bool *help,
                  struct hst_error *error);
void nb_args_help(FILE *out);

/** "256K,1M" into sizes or counts, each from least to greatest, rising. Pure. E402. */
int nb_list_parse(const char *option, const char *text, bool sizes, const double range[2],
                  struct nb_list *list, struct hst_error *error);
/**
 * Rated endurance in bytes: "600TBW", "1.2PBW", or "1DWPD,3.84TB,5Y" (drive writes per day,
 * capacity, years of 365 days). Makers' units: powers of 1000. Pure. False: not understood.
 */
bool nb_endurance_parse(const char *text, double *bytes);
const char *nb_precision_name(int precision);
#endif
