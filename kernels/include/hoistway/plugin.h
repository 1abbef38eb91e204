/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_PLUGIN_H
#define HOISTWAY_PLUGIN_H
/*
 * This header says what a device is made of, for who adds one: the table that it fills, and what a
 * plugin (libhoistway-KIND.so, see hst_dev_open) exports. Who uses devices needs kernels.h alone.
 */
#include <hoistway/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * One entry per call of kernels.h and of measure.h, same meaning, arguments already checked
 * (hst_dev_*, hst_stream_* and hst_op_* check at the boundary, then call). Every entry is set; what
 * a device cannot do returns -ENOTSUP.
 */
struct hst_dev_ops {
    size_t size; /* sizeof(struct hst_dev_ops): append only */
    const char *name;
    unsigned flags;
    void (*close)(struct hst_dev *dev);
    int (*mem_alloc)(struct hst_dev *dev, size_t size_bytes, void **memory);
    void (*mem_free)(struct hst_dev *dev, void *memory, size_t size_bytes);
    int (*host_alloc)(struct hst_dev *dev, size_t size_bytes, const struct hst_host_pages *pages,
                      void **memory);
    void (*host_free)(struct hst_dev *dev, void *memory, size_t size_bytes);
    void (*usage)(const struct hst_dev *dev, struct hst_dev_usage *usage);
    int (*budget)(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes);
    void (*info)(struct hst_dev *dev, struct hst_dev_info *info);
    void (*failure)(struct hst_dev *dev, struct hst_dev_failure *failure);
    int (*stream_create)(struct hst_dev *dev, const char *name, struct hst_stream **stream);
    void (*stream_destroy)(struct hst_stream *stream);
    int (*stream_sync)(struct hst_stream *stream);
    void *(*stream_native)(struct hst_stream *stream);
    int (*stream_wait)(struct hst_stream *stream, struct hst_event *event);
    int (*stream_copy)(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes);
    int (*stream_zero)(struct hst_stream *stream, void *dst, size_t size_bytes);
    int (*event_create)(struct hst_dev *dev, struct hst_event **event);
    void (*event_destroy)(struct hst_event *event);
    int (*event_record)(struct hst_event *event, struct hst_stream *stream);
    int (*event_query)(struct hst_event *event);
    int (*event_sync)(struct hst_event *event);
    int (*event_fd)(struct hst_event *event); /* null: -ENOTSUP */
    int (*matmul)(struct hst_stream *stream, const struct hst_matmul *args);
    size_t (*matmul_work_bytes)(struct hst_dev *dev, const struct hst_matmul *args);
    int (*rmsnorm)(struct hst_stream *stream, const struct hst_rmsnorm *args);
    int (*rmsnorm_backward)(struct hst_stream *stream, const struct hst_rmsnorm_backward *args);
    size_t (*rmsnorm_backward_work_bytes)(struct hst_dev *dev, size_t tokens, size_t width);
    int (*rope)(struct hst_stream *stream, const struct hst_rope *args);
    int (*attention)(struct hst_stream *stream, const struct hst_attention *args);
    int (*attention_backward)(struct hst_stream *stream, const struct hst_attention_backward *args);
    size_t (*attention_work_bytes)(struct hst_dev *dev, const struct hst_attention *args);
    int (*swiglu)(struct hst_stream *stream, const struct hst_swiglu *args);
    int (*swiglu_backward)(struct hst_stream *stream, const struct hst_swiglu_backward *args);
    int (*add)(struct hst_stream *stream, const struct hst_add *args);
    int (*cast)(struct hst_stream *stream, const struct hst_cast *args);
    int (*embedding)(struct hst_stream *stream, const struct hst_embedding *args);
    int (*embedding_backward)(struct hst_stream *stream, const struct hst_embedding_backward *args);
    int (*cross_entropy)(struct hst_stream *stream, const struct hst_cross_entropy *args);
    size_t (*embedding_backward_work_bytes)(struct hst_dev *dev, size_t tokens, size_t vocab);
    int (*norm2)(struct hst_stream *stream, const struct hst_norm2 *args);
    int (*optimize)(struct hst_stream *stream, const struct hst_optimize *args);
    int (*bias)(struct hst_stream *stream, const struct hst_bias *args);
    int (*bias_backward)(struct hst_stream *stream, const struct hst_bias_backward *args);
    size_t (*bias_backward_work_bytes)(struct hst_dev *dev, size_t tokens, size_t width);
    void (*math)(struct hst_dev *dev, char *text, size_t text_bytes);
    int (*event_create_timed)(struct hst_dev *dev, struct hst_event **event);
    int (*event_seconds)(struct hst_event *begin, struct hst_event *end, double *seconds);
    int (*host_lock)(struct hst_dev *dev, void *memory, size_t size_bytes);
    int (*host_unlock)(struct hst_dev *dev, void *memory, size_t size_bytes);
    int (*sum_ways)(struct hst_stream *stream, const struct hst_sum_ways *args);
    int (*quantise)(struct hst_stream *stream, const struct hst_quantise *args);
    int (*dequantise)(struct hst_stream *stream, const struct hst_dequantise *args);
};

/** A plugin exports this under the name hst_dev_plugin. */
struct hst_dev_plugin {
    size_t size;         /* sizeof(struct hst_dev_plugin) */
    const char *version; /* of the project, "0.1.0": must be that of the library */
    size_t ops_size;     /* sizeof(struct hst_dev_ops): must be the same */
    /* *failure is written on failure */
    int (*open)(const struct hst_dev_config *config, struct hst_dev **dev,
                struct hst_dev_failure *failure);
};

#ifdef __cplusplus
}
#endif
#endif
