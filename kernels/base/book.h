/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_BOOK_H
#define HST_KERNELS_BOOK_H
/*
 * This is a device's memory account, for every device: bytes held against two budgets, and host
 * memory that starts on a huge page. Compiled into the library and into each plugin (which uses no
 * symbol of the library). Thread-safety: safe.
 */
#include <hoistway/kernels.h>
#include <pthread.h>

#pragma GCC visibility push(hidden)

enum { HUGE_PAGE_BYTES = 2 << 20 };

enum book_side { BOOK_MEMORY, BOOK_HOST };

struct book {
    pthread_mutex_t lock; /* guards the rest */
    struct hst_dev_usage usage;
    uint64_t budgets[2]; /* of enum book_side */
};

void hst_book_open(struct book *book, const struct hst_dev_config *config);
void hst_book_close(struct book *book); /* nothing is held: asserted */
/** Before anything is allocated, so that two threads cannot both have the last byte: -ENOSPC. */
int hst_book_take(struct book *book, enum book_side side, size_t size_bytes);
/** It was had: the peak is of what was had, not of what was tried. */
void hst_book_keep(struct book *book, enum book_side side);
void hst_book_give(struct book *book, enum book_side side, size_t size_bytes);
void hst_book_usage(struct book *book, struct hst_dev_usage *usage);
/** As hst_dev_budget. */
int hst_book_budget(struct book *book, uint64_t memory_bytes, uint64_t host_bytes);

/** Zeroed, aligned to 2 MiB, advised to be huge pages; null: none is left. */
void *hst_map_aligned(size_t size_bytes);
void hst_unmap_aligned(void *memory, size_t size_bytes);

#pragma GCC visibility pop
#endif
