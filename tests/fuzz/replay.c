/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hands every file of some folders to a target: the seeds, and what a fuzzer once found. Without
 * libFuzzer, so that any compiler does; a finding names its file in the line before it.
 *
 *   replay_TARGET FOLDER...
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#define MAX_BYTES (1u << 20)

static void replay(const char *path)
{
    static char bytes[MAX_BYTES];
    FILE *file = fopen(path, "rb");
    MUST(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    MUST(!ferror(file) && size < sizeof bytes);
    fclose(file);
    printf("%s\n", path);
    fflush(stdout); /* before a finding ends the process */
    char *copy = exact_copy(bytes, size);
    LLVMFuzzerTestOneInput((const uint8_t *)copy, size);
    free(copy);
}

static size_t replay_folder(const char *folder)
{
    char path[4096];
    size_t count = 0;
    DIR *dir = opendir(folder);
    if (!dir) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        exit(1);
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        MUST((size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < sizeof path);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            replay(path);
            count++;
        }
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    for (int i = 1; i < argc; i++)
        count += replay_folder(argv[i]);
    printf("%zu inputs\n", count);
    return count ? 0 : 1;
}
