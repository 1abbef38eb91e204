/* SPDX-License-Identifier: Apache-2.0 */
/* See book.h. A budget counts the bytes asked for, exactly. */
#include "base/book.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

#define USUAL_SHARE 0.9 /* the rest: other processes, and what libraries take unasked */
#define LEFT_BYTES  (UINT64_C(512) << 20)

uint64_t hst_dev_left_bytes(uint64_t memory_bytes)
{
    return memory_bytes / 2 < LEFT_BYTES ? memory_bytes / 2 : LEFT_BYTES;
}

uint64_t hst_dev_usual_bytes(uint64_t free_bytes)
{
    const uint64_t share = (uint64_t)(USUAL_SHARE * (double)free_bytes);
    const uint64_t rest = free_bytes - hst_dev_left_bytes(free_bytes);
    return share < rest ? share : rest;
}

static uint64_t *held(struct book *book, enum book_side side)
{
    return side == BOOK_MEMORY ? &book->usage.memory_bytes : &book->usage.host_bytes;
}

void hst_book_open(struct book *book, const struct hst_dev_config *config)
{
    *book = (struct book){.budgets = {config->memory_bytes, config->host_bytes}};
    pthread_mutex_init(&book->lock, NULL); /* a default mutex on Linux: nothing can fail */
}

void hst_book_close(struct book *book)
{
    assert(book->usage.memory_bytes == 0 && book->usage.host_bytes == 0);
    pthread_mutex_destroy(&book->lock);
}

int hst_book_take(struct book *book, enum book_side side, size_t size_bytes)
{
    pthread_mutex_lock(&book->lock);
    bool room = size_bytes <= book->budgets[side] - *held(book, side);
    if (room)
        *held(book, side) += size_bytes;
    pthread_mutex_unlock(&book->lock);
    return room ? 0 : -ENOSPC;
}

void hst_book_keep(struct book *book, enum book_side side)
{
    uint64_t *peak =
        side == BOOK_MEMORY ? &book->usage.memory_peak_bytes : &book->usage.host_peak_bytes;
    pthread_mutex_lock(&book->lock);
    if (*held(book, side) > *peak)
        *peak = *held(book, side);
    pthread_mutex_unlock(&book->lock);
}

void hst_book_give(struct book *book, enum book_side side, size_t size_bytes)
{
    pthread_mutex_lock(&book->lock);
    assert(*held(book, side) >= size_bytes);
    *held(book, side) -= size_bytes;
    pthread_mutex_unlock(&book->lock);
}

void hst_book_usage(struct book *book, struct hst_dev_usage *usage)
{
    pthread_mutex_lock(&book->lock);
    *usage = book->usage;
    pthread_mutex_unlock(&book->lock);
}

int hst_book_budget(struct book *book, uint64_t memory_bytes, uint64_t host_bytes)
{
    pthread_mutex_lock(&book->lock);
    bool room = book->usage.memory_bytes <= memory_bytes && book->usage.host_bytes <= host_bytes;
    if (room) {
        book->budgets[BOOK_MEMORY] = memory_bytes;
        book->budgets[BOOK_HOST] = host_bytes;
    }
    pthread_mutex_unlock(&book->lock);
    return room ? 0 : -ENOSPC;
}

static size_t page_round(size_t size_bytes)
{
    return (size_bytes + 4095) & ~(size_t)4095;
}

/* Maps more than asked for and gives back what lies before and after the aligned part. */
void *hst_map_aligned(size_t size_bytes)
{
    size_t kept = page_round(size_bytes), mapped = kept + HUGE_PAGE_BYTES;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start % HUGE_PAGE_BYTES;
    if (before)
        munmap(start, before);
    munmap(start + before + kept, HUGE_PAGE_BYTES - before);
    (void)madvise(start + before, kept, MADV_HUGEPAGE); /* without huge pages only slower */
    (void)madvise(start + before, kept, MADV_DONTDUMP); /* a core dump would hold the model */
    return start + before;
}

void hst_unmap_aligned(void *memory, size_t size_bytes)
{
    munmap(memory, page_round(size_bytes));
}
