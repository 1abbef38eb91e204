/* SPDX-License-Identifier: Apache-2.0 */
/* This is what is said of operations and failures, by the engine and by plugins, which compile it
   too. */
#include "comm/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

int comm_fail(struct comm_failure *failure, int native, int rank, const char *format, ...)
{
    if (!failure)
        return native;
    *failure = (struct comm_failure){.native = native, .rank = rank};
    va_list args;
    va_start(args, format);
    vsnprintf(failure->text, sizeof failure->text, format, args);
    va_end(args);
    return native;
}

void comm_own_host(char name[COMM_HOST_BYTES])
{
    name[0] = name[COMM_HOST_BYTES - 1] = '\0';
    if (gethostname(name, COMM_HOST_BYTES - 1) || !*name)
        snprintf(name, COMM_HOST_BYTES, "a node without a name");
    for (char *c = name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

const char *comm_rank_text(const struct comm_info *info, uint32_t rank, char text[COMM_RANK_BYTES])
{
    const bool named = info->host && rank < info->ranks;
    snprintf(text, COMM_RANK_BYTES, "rank %u%s%s%s", rank, named ? " (" : "",
             named ? info->host[rank] : "", named ? ")" : "");
    return text;
}

const char *comm_kind_name(enum comm_kind kind)
{
    static const char *const names[] = {[COMM_GATHER] = "gather",
                                        [COMM_EXCHANGE] = "exchange",
                                        [COMM_SUM64] = "sum",
                                        [COMM_BCAST] = "broadcast",
                                        [COMM_SHARE] = "share"};
    const size_t i = (size_t)kind;
    return i < sizeof names / sizeof *names && names[i] ? names[i] : "operation";
}

uint64_t comm_quant_bytes(size_t count)
{
    return count + count / HST_QUANT_BLOCK * sizeof(float);
}

uint64_t comm_sum_block_bytes(const struct hst_sum_tree *tree, struct hst_sum_node node)
{
    return hst_sum_quantised(tree, node)
               ? HST_QUANT_BLOCK * (unsigned)tree->quant / 8 + sizeof(float)
               : HST_QUANT_BLOCK * hst_dtype_bytes(hst_sum_type(tree, node));
}

/* A rank hands over values, or a tree's integers in whole blocks. */
static uint64_t handed_bytes(const struct comm_op *op, uint32_t ranks)
{
    const struct hst_sum_node own = {0, op->tree.ways / ranks};
    return op->tree.quant ? op->count / HST_QUANT_BLOCK * comm_sum_block_bytes(&op->tree, own)
                          : op->count * hst_dtype_bytes(hst_sum_type(&op->tree, own));
}

uint64_t comm_op_bytes(const struct comm_op *op, uint32_t ranks, uint32_t locals)
{
    uint64_t each = op->count;
    if (op->kind == COMM_EXCHANGE) /* no rank's type is wider than rank 0's */
        each = handed_bytes(op, ranks);
    else if (op->kind == COMM_GATHER && op->quant)
        each = comm_quant_bytes(op->count / hst_dtype_bytes(op->dtype));
    else if (op->kind == COMM_SUM64)
        each *= sizeof(int64_t);
    return each * ((op->near ? locals : ranks) - 1);
}

uint32_t comm_hop_group(const struct comm_info *info, bool uniform)
{
    return uniform && info->nodes > 1 ? info->locals & -info->locals : 1;
}

bool comm_hops_fit(const struct comm_info *info, bool uniform, char why[COMM_WHY_BYTES])
{
    const uint32_t group = comm_hop_group(info, uniform), groups = info->ranks / group;
    const uint32_t inputs = groups > group ? groups : group;
    const uint32_t most = HST_SUM_INPUTS * HST_SUM_INPUTS; /* blocks, and inputs of each */
    if (inputs > most)
        snprintf(why, COMM_WHY_BYTES,
                 "an exchange by NCCL has %u ranks in one hop, and a GPU adds %u inputs at most",
                 inputs, most);
    return inputs <= most;
}
