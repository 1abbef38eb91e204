/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_NCCL_API_H
#define HOISTWAY_ENGINE_COMM_NCCL_API_H
/*
 * The small part of NCCL's interface that is used, declared here: the header comes with few
 * toolkits, and a plugin that is built without it runs with any library from 2.19 on. Values and
 * layouts are those of nccl.h, with which tests/comm/nccl_header.c compares them. The double
 * (tests/simt/nccl) is written against this file too.
 */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
};
enum nccl_type { NCCL_INT8 = 0, NCCL_INT64 = 4 };
enum nccl_red_op { NCCL_SUM = 0 };

enum {
    NCCL_ID_BYTES = 128,
    NCCL_WIN_COLL_SYMMETRIC = 1,
    NCCL_VERSION_LEAST = 21903,   /* 2.19.3, the first 2.19: it has ncclMemAlloc */
    NCCL_VERSION_WINDOW = 22700,  /* ncclCommWindowRegister */
    NCCL_VERSION_ALL_TO_ALL = 22800
};

struct nccl_id {
    char internal[NCCL_ID_BYTES];
};

struct nccl_comm; /* ncclComm_t points to one */

/*
 * ncclConfig_t of 2.28. A library reads as much of it as `size` says, and has its defaults for what
 * is behind that: 2.19 to 2.27 are given no more than 2.19 has, which ends before traffic_class.
 */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer,
        nvlink_centric_sched;
};
enum { NCCL_CTA_POLICY_ZERO = 2 };
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_UNDEFINED    (-2147483647 - 1)

typedef enum nccl_result nccl_get_version(int *version);
typedef const char *nccl_get_error_string(enum nccl_result result);
typedef const char *nccl_get_last_error(struct nccl_comm *comm);
typedef enum nccl_result nccl_get_unique_id(struct nccl_id *id);
typedef enum nccl_result nccl_comm_init_rank_config(struct nccl_comm **comm, int ranks,
                                                    struct nccl_id id, int rank,
                                                    struct nccl_config *config);
typedef enum nccl_result nccl_comm_split(struct nccl_comm *comm, int color, int key,
                                         struct nccl_comm **made, struct nccl_config *config);
typedef enum nccl_result nccl_comm_of(struct nccl_comm *comm);
typedef enum nccl_result nccl_comm_get_async_error(struct nccl_comm *comm,
                                                   enum nccl_result *result);
typedef enum nccl_result nccl_mem_alloc(void **memory, size_t bytes);
typedef enum nccl_result nccl_mem_free(void *memory);
typedef enum nccl_result nccl_window_register(struct nccl_comm *comm, void *memory, size_t bytes,
                                              void **window, int flags);
typedef enum nccl_result nccl_window_deregister(struct nccl_comm *comm, void *window);
typedef enum nccl_result nccl_all_gather(const void *send, void *receive, size_t count,
                                         enum nccl_type type, struct nccl_comm *comm, void *stream);
typedef nccl_all_gather nccl_all_to_all;
typedef enum nccl_result nccl_all_reduce(const void *send, void *receive, size_t count,
                                         enum nccl_type type, enum nccl_red_op op,
                                         struct nccl_comm *comm, void *stream);
typedef enum nccl_result nccl_broadcast(const void *send, void *receive, size_t count,
                                        enum nccl_type type, int root, struct nccl_comm *comm,
                                        void *stream);
typedef enum nccl_result nccl_send(const void *send, size_t count, enum nccl_type type, int peer,
                                   struct nccl_comm *comm, void *stream);
typedef enum nccl_result nccl_recv(void *receive, size_t count, enum nccl_type type, int peer,
                                   struct nccl_comm *comm, void *stream);
typedef enum nccl_result nccl_group_call(void);

/* These are what every library from NCCL_VERSION_LEAST on has, by its own names. */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(nccl_get_version, ncclGetVersion)                                                            \
    X(nccl_get_error_string, ncclGetErrorString)                                                   \
    X(nccl_get_last_error, ncclGetLastError)                                                       \
    X(nccl_get_unique_id, ncclGetUniqueId)                                                         \
    X(nccl_comm_init_rank_config, ncclCommInitRankConfig)                                          \
    X(nccl_comm_split, ncclCommSplit)                                                              \
    X(nccl_comm_of, ncclCommFinalize)                                                              \
    X(nccl_comm_of, ncclCommDestroy)                                                               \
    X(nccl_comm_of, ncclCommAbort)                                                                 \
    X(nccl_comm_get_async_error, ncclCommGetAsyncError)                                            \
    X(nccl_mem_alloc, ncclMemAlloc)                                                                \
    X(nccl_mem_free, ncclMemFree)                                                                  \
    X(nccl_all_gather, ncclAllGather)                                                              \
    X(nccl_all_reduce, ncclAllReduce)                                                              \
    X(nccl_broadcast, ncclBroadcast)                                                               \
    X(nccl_send, ncclSend)                                                                         \
    X(nccl_recv, ncclRecv)                                                                         \
    X(nccl_group_call, ncclGroupStart)                                                             \
    X(nccl_group_call, ncclGroupEnd)
/* These are what later ones have; null before. */
#define NCCL_LATER_FUNCTIONS(X)                                                                    \
    X(nccl_window_register, ncclCommWindowRegister, NCCL_VERSION_WINDOW)                           \
    X(nccl_window_deregister, ncclCommWindowDeregister, NCCL_VERSION_WINDOW)                       \
    X(nccl_all_to_all, ncclAlltoAll, NCCL_VERSION_ALL_TO_ALL)

struct nccl_library {
    void *handle;
    int version; /* 22809 is 2.28.9 */
#define NCCL_MEMBER(type, name) type *name;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
#define NCCL_MEMBER(type, name, version) type *name;
    NCCL_LATER_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

#ifdef __cplusplus
}
#endif
#endif
