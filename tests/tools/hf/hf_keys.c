/* SPDX-License-Identifier: Apache-2.0 */
/* The table of config.json's keys, a line each: name, kind, values, why. */
#include "hf/config/keys.h"

#include <stdio.h>

int main(void)
{
    static const char *const kinds[] = {
        [CONFIG_BUILT] = "built", [CONFIG_REFUSED] = "refused", [CONFIG_NO_EFFECT] = "no effect"};
    const struct config_key *k;
    for (size_t i = 0; (k = config_key(i)); i++)
        printf("%s\t%s\t%s\t%s\n", k->name, kinds[k->kind], k->values ? k->values : "",
               k->why ? k->why : "");
    return 0;
}
