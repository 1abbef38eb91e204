/* SPDX-License-Identifier: Apache-2.0 */
/* Which replicas lie beside a store's first file: they say what that one says, and are not it. */
#include "ckpt/ckpt.h"

#include <stdlib.h>
#include <string.h>

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool is_replica(const struct store_directory *directory, const char *text,
                       struct store_name *name)
{
    struct store_header header;
    struct hst_error ignored;
    return store_name_parse(text, name) && name->rank > 0 && name->drive == 0 && !name->forming &&
           !name->room && store_first_look(directory, name->rank, false, &header, &ignored) == 0 &&
           header.world == 1;
}

size_t hst_ckpt_replicas(const char *store, uint64_t step, uint32_t *numbers, size_t capacity)
{
    struct store_directory directory = {.fd = -1};
    struct hst_error ignored;
    char *copies = step == HST_NO_VERSION ? NULL : kept_directories(store, step);
    const char *of = step == HST_NO_VERSION ? store : copies;
    char *first = of ? strndup(of, strcspn(of, ",")) : NULL;
    DIR *names = first && store_directory_open(first, &directory, &ignored) == 0
                     ? store_directory_list(&directory, &ignored)
                     : NULL;
    size_t count = 0;
    for (const struct dirent *entry; names && (entry = readdir(names)) != NULL;) {
        struct store_name name;
        if (!is_replica(&directory, entry->d_name, &name))
            continue;
        if (count < capacity)
            numbers[count] = name.rank;
        count++;
    }
    if (names)
        closedir(names);
    store_directory_close(&directory);
    free(first);
    free(copies);
    qsort(numbers, count < capacity ? count : capacity, sizeof *numbers, by_number);
    return count;
}
