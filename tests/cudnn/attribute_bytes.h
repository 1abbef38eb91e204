/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_CUDNN_ATTRIBUTE_BYTES_H
#define TEST_CUDNN_ATTRIBUTE_BYTES_H
/* How large one element of an attribute is; for both fakes of cuDNN. */
#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>

static inline size_t attribute_element_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default: /* enumerations */
        return sizeof(int);
    }
}

#endif
