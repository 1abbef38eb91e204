/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how the record of a step or an evaluation looks as a row. */
#include "views/csv.h"

#include "cli/log/output.h"

static const struct output_kind CSV = {
    .noun = "csv",
    .option = "--csv",
    .begin = "step,loss,grad_norm,lr,tokens,",
    .makes_parents = true,
};

int csv_check(const char *path, struct hst_error *error)
{
    return output_check(&CSV, path, error);
}

static int unwritable(struct csv *csv, struct hst_error *error)
{
    const int native = output_unwritable(&CSV, csv->path, error);
    fclose(csv->file);
    csv->file = NULL;
    return native;
}

int csv_open(struct csv *csv, const char *path, struct hst_error *error)
{
    *csv = (struct csv){.path = path};
    const int native = path ? output_open(&CSV, path, &csv->file, error) : 0;
    if (native || !path)
        return native;
    fputs("step", csv->file);
    for (enum measure m = 0; m < MEASURES; m++) {
        const struct measure_name *name = &MEASURE_NAMES[m];
        fprintf(csv->file, ",%s%s%s", name->group ? name->group : "", name->group ? "_" : "",
                name->key);
    }
    return putc('\n', csv->file) == EOF || fflush(csv->file) ? unwritable(csv, error) : 0;
}

int csv_take(struct csv *csv, const struct record *record, bool flush, struct hst_error *error)
{
    if (!csv->file || !record_measures(record))
        return 0;
    fprintf(csv->file, "%llu", (unsigned long long)record->step);
    for (enum measure m = 0; m < MEASURES; m++) {
        const struct jsn_value span = record->spans[m];
        putc(',', csv->file);
        if (span.type == JSN_NUMBER)
            fwrite(record->line + span.begin, 1, span.end - span.begin, csv->file);
    }
    putc('\n', csv->file);
    return ferror(csv->file) || (flush && fflush(csv->file)) ? unwritable(csv, error) : 0;
}

int csv_close(struct csv *csv, struct hst_error *error)
{
    if (!csv->file)
        return 0;
    FILE *file = csv->file;
    csv->file = NULL;
    return fclose(file) ? output_unwritable(&CSV, csv->path, error) : 0;
}
