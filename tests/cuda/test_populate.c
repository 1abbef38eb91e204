/* SPDX-License-Identifier: Apache-2.0 */
/* Fresh host memory gets all its pages, whoever makes them; what has none is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/book.h"
#include "device/populate.h"
#include <cmocka.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)

static size_t resident_pages(void *memory, size_t size_bytes)
{
    size_t pages = size_bytes / PAGE, there = 0;
    unsigned char *in_core = calloc(pages, 1);
    assert_non_null(in_core);
    assert_int_equal(mincore(memory, size_bytes, in_core), 0);
    for (size_t i = 0; i < pages; i++)
        there += in_core[i] & 1;
    free(in_core);
    return there;
}

static void check_all_of(size_t size_bytes)
{
    char *memory = hst_map_aligned(size_bytes);
    assert_non_null(memory);
    assert_int_equal(resident_pages(memory, size_bytes), 0);
    assert_int_equal(cuda_populate(memory, size_bytes), 0);
    assert_int_equal(resident_pages(memory, size_bytes), size_bytes / PAGE);
    hst_unmap_aligned(memory, size_bytes);
}

static void every_page_is_there(void **state)
{
    (void)state;
    check_all_of(PAGE);
    check_all_of(HUGE_PAGE_BYTES);
    check_all_of(2 * POPULATE_PART + 3 * PAGE); /* by as many threads as there are processors */
}

static void one_processor_is_enough(void **state)
{
    (void)state;
    cpu_set_t had, one;
    assert_int_equal(sched_getaffinity(0, sizeof had, &had), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &had))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    check_all_of(POPULATE_PART + PAGE);
    assert_int_equal(sched_setaffinity(0, sizeof had, &had), 0);
}

/* In the first thread's range, and in the last one's. */
static void what_can_not_be_had_is_told(void **state)
{
    (void)state;
    const size_t size_bytes = 2 * POPULATE_PART, holes[] = {0, size_bytes - PAGE};
    for (size_t i = 0; i < 2; i++) {
        char *memory = hst_map_aligned(size_bytes);
        assert_non_null(memory);
        munmap(memory + holes[i], PAGE);
        assert_int_equal(cuda_populate(memory, size_bytes), -ENOMEM);
        hst_unmap_aligned(memory, size_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_there),
        cmocka_unit_test(one_processor_is_enough),
        cmocka_unit_test(what_can_not_be_had_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
