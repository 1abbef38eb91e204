/* SPDX-License-Identifier: Apache-2.0 */
#include <hoistway/kernels.h>

size_t hst_dtype_bytes(enum hst_dtype dtype)
{
    return dtype == HST_F32 ? 4 : dtype == HST_BF16 || dtype == HST_F16 ? 2 : 0;
}
