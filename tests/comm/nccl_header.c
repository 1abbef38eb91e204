/* SPDX-License-Identifier: Apache-2.0 */
/* What comm/nccl/api.h declares is what nccl.h has, where one is found: it is enough to compile. */
#include "comm/nccl/api.h"

/* Names of both: ours, before the header's macros take them. */
enum { OWN_SYMMETRIC = NCCL_WIN_COLL_SYMMETRIC, OWN_POLICY_ZERO = NCCL_CTA_POLICY_ZERO };

#include <assert.h>
#include <nccl.h>

#define SAME(own, theirs) static_assert((int)(own) == (int)(theirs), #own " is not " #theirs)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_INT64, ncclInt64);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(sizeof(struct nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(enum nccl_result), sizeof(ncclResult_t));
SAME(sizeof(enum nccl_type), sizeof(ncclDataType_t));
SAME(NCCL_VERSION_LEAST, NCCL_VERSION(2, 19, 3));
SAME(NCCL_VERSION_WINDOW, NCCL_VERSION(2, 27, 0));
SAME(NCCL_VERSION_ALL_TO_ALL, NCCL_VERSION(2, 28, 0));

#define SAME_PLACE(own, theirs)                                                                    \
    SAME(offsetof(struct nccl_config, own), offsetof(ncclConfig_t, theirs))
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
#if NCCL_VERSION_CODE >= 22800
SAME(OWN_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
SAME(OWN_POLICY_ZERO, NCCL_CTA_POLICY_ZERO);
SAME_PLACE(traffic_class, trafficClass);
SAME_PLACE(comm_name, commName);
SAME_PLACE(cta_policy, CTAPolicy);
SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
#endif

int main(void)
{
    return 0;
}
