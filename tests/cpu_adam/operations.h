/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_CPU_ADAM_OPERATIONS_H
#define HST_TESTS_CPU_ADAM_OPERATIONS_H
/* Everything a table of cpu_adam can do, as rows of one shape: arrays in, arrays out. */
#include <hoistway/cpu_adam.h>

enum { ARRAYS_MAX = 7, OPERATIONS_MAX = 160 };

/* In place of an element's bytes: 4 bytes for each block of codes. */
enum { OPERATION_SCALE = 255 };

struct operation {
    const char *name;
    unsigned char element_bytes[ARRAYS_MAX]; /* 0: no more; 8: the partials of a norm */
    size_t cut;                              /* ranges may be cut at multiples of this */
    size_t index;                            /* of the update, or the norm, in its table */
    /* index: of the first element in the model. Returns what the operation counts; adds up over the
       pieces of a range. */
    size_t (*call)(const struct operation *op, const struct hst_cpu_adam_ops *ops,
                   const struct hst_adam_coef *coef, void *const *array, uint64_t index, size_t n);
};

/* The operations of a table, the same for every table. Returns how many. */
size_t operations_list(const struct hst_cpu_adam_ops *ops, struct operation out[OPERATIONS_MAX]);

#endif
