/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models known by name, with the sizes their authors published, and what follows from sizes:
 * numbers of parameters. Sources: Touvron et al. 2023, arXiv:2302.13971 and arXiv:2307.09288;
 * Grattafiori et al. 2024, arXiv:2407.21783; the config.json of each release. GPT models are no
 * Llama: what stands for one has its layers, width, heads and vocabulary, and an inner size with
 * which three matrices of an MLP have as many parameters as its two. Sources of these: Narayanan et
 * al. 2021, arXiv:2104.04473, table 1; Rosset 2020, "Turing-NLG"; BLOOM, arXiv:2211.05100, table 3;
 * Smith et al. 2022, arXiv:2201.11990; Rajbhandari et al. 2021, arXiv:2104.07857.
 */
#include <hoistway/plan.h>

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Rows of a wide table are easier to compare than fields by name. */
/* clang-format off */
static const struct hst_shape shapes[] = {
    /* name    series       hidden  inner  layers heads kv  dim  vocab   tied   normed biased for */
    {"1B",   "Llama 3.2",   2048,   8192,  16,    32,   8,  64,  128256, true,  false, false, NULL},
    {"3B",   "Llama 3.2",   3072,   8192,  28,    24,   8,  128, 128256, true,  false, false, NULL},
    {"7B",   "Llama 2",     4096,  11008,  32,    32,   32, 128, 32000,  false, false, false, NULL},
    {"7.5B", "Megatron-LM", 4096,  10944,  36,    32,   32, 128, 51200,  true,  false, false,
     "Megatron-LM's of 36 layers x 4,096, the size that ZeRO reckons with"},
    {"8B",   "Llama 3",     4096,  14336,  32,    32,   8,  128, 128256, false, false, false, NULL},
    {"13B",  "Llama 2",     5120,  13824,  40,    40,   40, 128, 32000,  false, false, false, NULL},
    {"14B",  "Qwen3",       5120,  17408,  40,    40,   8,  128, 151936, false, true,  false, NULL},
    {"17B",  "Turing-NLG",  4256,  11328,  78,    28,   28, 152, 51200,  true,  false, false,
     "T-NLG, 78 layers x 4,256"},
    {"33B",  "LLaMA",       6656,  17920,  60,    52,   52, 128, 32000,  false, false, false, NULL},
    {"32B",  "Qwen3",       5120,  25600,  64,    64,   8,  128, 151936, false, true,  false, NULL},
    {"65B",  "LLaMA",       8192,  22016,  80,    64,   64, 128, 32000,  false, false, false, NULL},
    {"70B",  "Llama 3",     8192,  28672,  80,    64,   8,  128, 128256, false, false, false, NULL},
    {"176B", "BLOOM",      14336,  38208,  70,   112,  112, 128, 250880, true,  false, false,
     "BLOOM, 70 layers x 14,336"},
    {"405B", "Llama 3.1",  16384,  53248, 126,   128,   8,  128, 128256, false, false, false, NULL},
    {"530B", "MT-NLG",     20480,  54592, 105,   128,  128, 160, 51200,  true,  false, false,
     "MT-NLG, 105 layers x 20,480"},
    {"1T",   "ZeRO-Infinity", 25600, 68288, 128, 256, 256, 100, 51200,  true,  false, false,
     "ZeRO-Infinity's of 128 layers x 25,600"},
};
/* clang-format on */
#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

const struct hst_shape *hst_shapes(size_t *count)
{
    *count = SHAPE_COUNT;
    return shapes;
}

/* "llama-3-8b" of the row "8B", "Llama 3". */
static void long_name(const struct hst_shape *shape, char *dst, size_t dst_bytes)
{
    snprintf(dst, dst_bytes, "%s-%s", shape->series, shape->name);
    for (char *c = dst; *c; c++)
        if (*c == ' ')
            *c = '-';
}

const struct hst_shape *hst_shape_find(const char *name)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        char whole[64];
        long_name(&shapes[i], whole, sizeof whole);
        if (strcasecmp(name, shapes[i].name) == 0 || strcasecmp(name, whole) == 0)
            return &shapes[i];
    }
    return NULL;
}

static uint64_t layer_params(const struct hst_shape *s)
{
    uint64_t h = s->hidden, q = (uint64_t)s->heads * s->head_dim;
    uint64_t kv = (uint64_t)s->kv_heads * s->head_dim;
    uint64_t attention = h * q + 2 * h * kv + q * h;
    uint64_t mlp = 3 * h * s->intermediate;
    uint64_t vectors = 2 * h; /* norms */
    if (s->qk_norm)
        vectors += 2 * (uint64_t)s->head_dim;
    if (s->qkv_bias)
        vectors += q + 2 * kv;
    return attention + mlp + vectors;
}

/* In doubles, which no size overflows; exact enough to tell what 64 bits do not hold. */
static bool is_countable(const struct hst_shape *s)
{
    double h = s->hidden, heads = 2.0 * s->heads + 2.0 * s->kv_heads;
    double layer = h * (heads * s->head_dim + 3.0 * s->intermediate + 2);
    layer += s->qkv_bias ? heads * s->head_dim : 0;
    return 2.0 * s->vocab * h + s->layers * layer + h < 0x1p63;
}

uint64_t hst_shape_params(const struct hst_shape *s)
{
    if (!is_countable(s))
        return 0;
    uint64_t table = (uint64_t)s->vocab * s->hidden;
    return (s->tied ? 1 : 2) * table + s->layers * layer_params(s) + s->hidden;
}

uint64_t hst_shape_matmul_params(const struct hst_shape *s)
{
    uint64_t params = hst_shape_params(s);
    return s->tied || params == 0 ? params : params - (uint64_t)s->vocab * s->hidden;
}
