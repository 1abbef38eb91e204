/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded, it makes a program say that it is of another version. */
const char *hst_version(void);

__attribute__((visibility("default"))) const char *hst_version(void)
{
    return "0.0.7";
}
