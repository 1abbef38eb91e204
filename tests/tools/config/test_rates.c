/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of DeepSpeed's schedulers are those that its own classes gave (make_rates.py). */
#include "cli/schedule_peer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LR        3e-4
#define TOLERANCE 1e-15 /* of the peak */

static const char *golden_path;

static void rates_are_those_of_deepspeed(void **state)
{
    (void)state;
    char line[256], name[32], type[16];
    unsigned long long step;
    double rate;
    size_t rates = 0;
    FILE *file = fopen(golden_path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        struct schedule_peer p = {.kind = PEER_WARMUP};
        unsigned long long warmup, total;
        if (line[0] == '#')
            continue;
        assert_int_equal(sscanf(line, "%31s %15s %llu %llu %lf %lf %llu %lf", name, type, &warmup,
                                &total, &p.lr_begin, &p.lr_end, &step, &rate),
                         8);
        while (strcmp(PEER_NAMES[p.kind - PEER_WARMUP], name) != 0)
            p.kind++;
        p.linear = strcmp(type, "linear") == 0;
        p.warmup_steps = warmup;
        p.total_steps = total;
        const double got = schedule_peer_lr(&p, LR, step);
        if (!(fabs(got - rate) <= TOLERANCE * LR))
            fail_msg("%s: %.17g", line, got);
        rates++;
    }
    fclose(file);
    assert_int_equal(rates, 2100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_those_of_deepspeed)};
    golden_path = argc > 1 ? argv[1] : "rates.txt";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
