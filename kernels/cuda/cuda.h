/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_CUDA_H
#define HST_CUDA_CUDA_H
/*
 * The CUDA device's own objects and what its files know of each other. Every call of the table
 * begins with cuda_enter, because the current GPU is a property of the calling thread. Every error
 * of a CUDA call goes through failure.c, which remembers the first and clears the runtime's own
 * memory of it: a launcher would otherwise report it again as its own.
 */
#include "base/book.h"
#include "base/object.h"
#include "cuda/device/failure_text.h"
#include <cuda_runtime_api.h>
#include <hoistway/plugin.h>
#include <pthread.h>

struct blaslt;
struct cuda_block;
struct hst_sdpa;

struct cuda_dev {
    struct hst_dev base;
    int index;
    /* what does not change while the device is open; free memory and the link's speed are read */
    struct hst_dev_info info;
    cudaStream_t own;      /* on which new memory is zeroed */
    struct blaslt *blaslt; /* null: products by the plugin's own kernels */
    struct hst_sdpa *sdpa; /* null: attention by the plugin's own kernels */
    bool sdpa_alone;       /* what it does not serve is refused: to measure it */
    bool sleeps;           /* who waits for the card sleeps (wait.h) */
    struct book book;
    pthread_mutex_t lock;      /* guards everything below */
    struct cuda_block *blocks; /* device memory that is held */
    unsigned stream_count, event_count;
    struct hst_dev_failure failure; /* the first */
};

static inline struct cuda_dev *cuda_dev_of(struct hst_dev *dev)
{
    return (struct cuda_dev *)dev;
}

/* ---- failure.c ------------------------------------------------------------------------------- */

/* The negative errno that a CUDA error is reported as. */
int cuda_errno(cudaError_t error);
/* It tells what can be done about a CUDA error of a card that was there. */
enum hst_dev_why cuda_why(cudaError_t error);
/* Keeps it if it is the device's first. */
void cuda_failure_keep(struct cuda_dev *dev, const struct hst_dev_failure *failure);
/* A CUDA call that failed: kept with `what` before the error's name and text; its errno. */
__attribute__((format(printf, 3, 4))) int cuda_failed(struct cuda_dev *dev, cudaError_t error,
                                                      const char *what, ...);
void cuda_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure);
/* Makes the device's GPU the calling thread's. 0, or a kept failure's errno. */
int cuda_enter(struct cuda_dev *dev);

/* ---- device.c, info.c ------------------------------------------------------------------------ */

void cuda_dev_close(struct hst_dev *dev);
/* Reads what does not change: name, PCI address, versions, sizes. */
cudaError_t cuda_info_read(int index, struct hst_dev_info *info);
/* It reads what sysfs says of the device at info->pci under `root` ("/sys/bus/pci/devices"). */
void cuda_info_read_pci(const char *root, struct hst_dev_info *info);
void cuda_dev_info(struct hst_dev *dev, struct hst_dev_info *info);

/* ---- refusal.c ------------------------------------------------------------------------------- */

/* Why there is no GPU at all: -ENODEV. */
int cuda_no_gpu(cudaError_t error, struct hst_dev_failure *failure);
/* There are so many, and none of this index: -ENODEV. */
int cuda_no_index(unsigned index, int count, struct hst_dev_failure *failure);
/* The card's context could not be made, or the card not be asked: -ENOMEM, -ENODEV. */
int cuda_no_context(int index, cudaError_t error, struct hst_dev_failure *failure);

/* ---- math.c ---------------------------------------------------------------------------------- */

void cuda_dev_math(struct hst_dev *dev, char *text, size_t text_bytes);
/* Appends ", NAME=VALUE" for each variable that changes what the libraries do. */
void cuda_math_environment(char *text, size_t text_bytes);
/* Appends the driver's own version, the first line of this file of sysfs. */
void cuda_math_driver(const char *file, char *text, size_t text_bytes);

/* ---- memory.c -------------------------------------------------------------------------------- */

int cuda_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory);
void cuda_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes);
int cuda_host_alloc(struct hst_dev *dev, size_t size_bytes,
                    const struct hst_host_pages *pages, void **memory);
void cuda_host_free(struct hst_dev *dev, void *memory, size_t size_bytes);
int cuda_host_lock(struct hst_dev *dev, void *memory, size_t size_bytes);
int cuda_host_unlock(struct hst_dev *dev, void *memory, size_t size_bytes);
void cuda_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage);
int cuda_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes);

/* ---- stream.c -------------------------------------------------------------------------------- */

int cuda_stream_create(struct hst_dev *dev, const char *name, struct hst_stream **stream);
void cuda_stream_destroy(struct hst_stream *stream);
int cuda_stream_sync(struct hst_stream *stream);
void *cuda_stream_native(struct hst_stream *stream);
int cuda_stream_wait(struct hst_stream *stream, struct hst_event *event);
int cuda_stream_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes);
int cuda_stream_zero(struct hst_stream *stream, void *dst, size_t size_bytes);
int cuda_event_create(struct hst_dev *dev, struct hst_event **event);
int cuda_event_create_timed(struct hst_dev *dev, struct hst_event **event);
int cuda_event_seconds(struct hst_event *begin, struct hst_event *end, double *seconds);
void cuda_event_destroy(struct hst_event *event);
int cuda_event_record(struct hst_event *event, struct hst_stream *stream);
int cuda_event_query(struct hst_event *event);
int cuda_event_sync(struct hst_event *event);
/*
 * Around every operation: begin returns the stream's sticky error or enters the device; end turns
 * what was launched into 0 or a new sticky error. cudaErrorNotSupported is -ENOTSUP and does not
 * stick: nothing was enqueued.
 */
int cuda_stream_begin(struct hst_stream *stream);
int cuda_stream_end(struct hst_stream *stream, cudaError_t error, const char *what);
/* The same for an error that is not the runtime's; it was kept by the caller. */
int cuda_stream_fail(struct hst_stream *stream, int error);

/* ---- probe.cu -------------------------------------------------------------------------------- */

/* cudaSuccess where this build has code that the current GPU can run. */
cudaError_t hst_cuda_probe(void);

/* ---- table.c --------------------------------------------------------------------------------- */

extern const struct hst_dev_ops cuda_ops;

#endif
