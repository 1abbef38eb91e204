/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_ASSERT_FIGURE_H
#define HOISTWAY_TESTS_ASSERT_FIGURE_H
/* What a figure of a probe can be. */
#include <hoistway/machine.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Between what no machine is too slow for and what none reaches. */
static inline void assert_measured(const struct hst_figure *f, double least, double most)
{
    if (!(f->value > least && f->value < most && f->least > 0 && f->least <= f->value &&
          f->value <= f->most && isfinite(f->most) && f->rounds > 0 && f->how[0] &&
          f->value == round(f->value)))
        fail_msg("%g [%g, %g] of %u: %s", f->value, f->least, f->most, f->rounds, f->how);
}

static inline void assert_failed(const struct hst_figure *f, const char *why)
{
    if (f->value != 0 || f->most != 0 || f->rounds != 0 || !strstr(f->how, why))
        fail_msg("%g: '%s', not '%s'", f->value, f->how, why);
}

#endif
