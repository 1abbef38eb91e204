/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations of a device are wrong, told in seconds: triage.h. */
#include "triage.h"

int main(int argc, char **argv)
{
    struct triage_tests (*const parts[])(void) =
        {
            triage_element_tests,   triage_row_tests,     triage_token_tests,
            triage_optimizer_tests, triage_product_tests, triage_attention_tests,
            triage_engine_tests, /* the last: they change what the environment asks for */
        };
    static struct CMUnitTest all[256];
    size_t count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct triage_tests part = parts[i]();
        if (count + part.count > sizeof all / sizeof *all)
            return 1;
        memcpy(all + count, part.tests, part.count * sizeof *all);
        count += part.count;
    }
    return suite_main(argc, argv, all, count);
}
