/* SPDX-License-Identifier: Apache-2.0 */
#include <hoistway/hoistway.h>

#define STRING_OF(x)          #x
#define VERSION_TEXT(a, b, c) STRING_OF(a) "." STRING_OF(b) "." STRING_OF(c)

const char *hst_version(void)
{
    return VERSION_TEXT(HST_VERSION_MAJOR, HST_VERSION_MINOR, HST_VERSION_PATCH);
}
