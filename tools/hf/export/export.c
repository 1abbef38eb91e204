/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a model directory beside its target, under a hidden name: sizes are reserved first, so
 * that a full disk is found at once, and the name is taken last, so that the target is always a
 * complete model.
 */
#include "hf/export/export.h"

#include "base/fail.h"
#include "base/text.h"
#include "hf/config/config.h"
#include "hf/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char index_name[] = "model.safetensors.index.json";

struct hf_export {
    struct target target;
    struct export_layout layout;
    int *fds;     /* of layout.files, -1: not created */
    char *marker; /* text, while it grows */
    size_t marker_bytes;
    FILE *marker_out;
    bool synced;
    bool again; /* a sync failed: what was written may be lost, and counts as not written */
};

static int refuse_write(const struct hf_export *x, const char *name, int rc,
                        struct hst_error *error)
{
    bool full = rc == -ENOSPC || rc == -EDQUOT;
    return fail(error, full ? FAIL_DISK_SPACE : FAIL_WRITE, rc, "%s/%s: %s cannot be written: %s%s",
                x->target.parent, x->target.name, name, strerrordesc_np(-rc),
                rc == -EFBIG ? ". Fix: ulimit -f unlimited, or a file system of larger files" : "");
}

static int write_all(int fd, uint64_t offset, const void *src, size_t bytes)
{
    const char *at = src;
    while (bytes) {
        ssize_t n = pwrite(fd, at, bytes < 1u << 30 ? bytes : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EIO;
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Disk blocks for the whole file, where the file system can promise them. */
static int reserve(int fd, uint64_t bytes)
{
    int rc;
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes) ? -errno : 0;
    while (rc == -EINTR);
    if (rc == -EOPNOTSUPP || rc == -ENOSYS)
        rc = ftruncate(fd, (off_t)bytes) ? -errno : 0;
    return rc;
}

/*
 * Creates a file of `bytes` bytes that starts with `text`, and lists it in the marker. Returns its
 * descriptor.
 */
static int create_file(struct hf_export *x, const char *name, uint64_t bytes, const void *text,
                       size_t text_bytes, struct hst_error *error)
{
    int fd =
        openat(x->target.temp_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse_write(x, name, -errno, error);
    fprintf(x->marker_out, "%llu %s\n", (unsigned long long)bytes, name);
    int rc = bytes ? reserve(fd, bytes) : 0;
    if (!rc)
        rc = write_all(fd, 0, text, text_bytes);
    if (!rc)
        return fd;
    close(fd);
    return refuse_write(x, name, rc, error);
}

static int finish_file(const struct hf_export *x, const char *name, int fd, struct hst_error *error)
{
    int rc = fsync(fd) ? -errno : 0;
    close(fd);
    return rc ? refuse_write(x, name, rc, error) : 0;
}

static int write_text(struct hf_export *x, const char *name, const char *text, size_t bytes,
                      struct hst_error *error)
{
    int fd = create_file(x, name, bytes, text, bytes, error);
    return fd < 0 ? fd : finish_file(x, name, fd, error);
}

static int copy_extra(struct hf_export *x, const struct input *from, const char *name,
                      struct hst_error *error)
{
    enum { PART = 1 << 16 };
    int fd = create_file(x, name, from->size_bytes, NULL, 0, error);
    if (fd < 0)
        return fd;
    char part[PART];
    int rc = 0;
    for (uint64_t at = 0; at < from->size_bytes && !rc; at += PART) {
        size_t n = from->size_bytes - at < PART ? (size_t)(from->size_bytes - at) : PART;
        rc = input_read(from, at, part, n);
        if (rc) {
            fail(error, FAIL_READ, rc, "%s of the model directory cannot be copied: %s", name,
                 input_why(rc));
        } else if ((rc = write_all(fd, at, part, n))) {
            refuse_write(x, name, rc, error);
        }
    }
    if (!rc)
        return finish_file(x, name, fd, error);
    close(fd);
    return rc;
}

static int copy_extras(struct hf_export *x, const struct hf_model *model, struct hst_error *error)
{
    for (size_t i = 0; i < model->extra_count; i++) {
        const struct hf_extra *extra = &model->extras[i];
        if (strchr(extra->name, '/') && mkdirat(x->target.temp_fd, HF_TEMPLATES, 0700) &&
            errno != EEXIST)
            return refuse_write(x, HF_TEMPLATES, -errno, error);
        int rc = copy_extra(x, &extra->input, extra->name, error);
        if (rc)
            return rc;
    }
    return target_sync_templates(&x->target, error);
}

static int write_config(struct hf_export *x, const struct hf_export_desc *desc,
                        struct hst_error *error)
{
    size_t bytes;
    char *text = config_with_dtype(desc->model->config_text, desc->model->config_bytes,
                                   desc->dtype == HST_F32    ? "float32"
                                   : desc->dtype == HST_BF16 ? "bfloat16"
                                                             : "float16",
                                   &bytes);
    if (!text)
        return fail(error, FAIL_EXPORT, -ENOMEM, "%s: no memory for config.json", desc->directory);
    int rc = write_text(x, "config.json", text, bytes, error);
    free(text);
    return rc;
}

static int create_weights(struct hf_export *x, struct hst_error *error)
{
    for (uint32_t i = 0; i < x->layout.file_count; i++) {
        const struct export_layout_file *f = &x->layout.files[i];
        int fd = create_file(x, f->name, f->header_bytes + f->data_bytes, f->header,
                             f->header_bytes, error);
        if (fd < 0)
            return fd;
        x->fds[i] = fd;
    }
    return x->layout.index
               ? write_text(x, index_name, x->layout.index, strlen(x->layout.index), error)
               : 0;
}

/* Last, because it lists the others. It does not list itself. */
static int write_marker(struct hf_export *x, struct hst_error *error)
{
    int rc = ferror(x->marker_out) ? -ENOMEM : 0;
    if (fclose(x->marker_out))
        rc = -ENOMEM;
    x->marker_out = NULL;
    if (rc)
        return fail(error, FAIL_EXPORT, rc, "%s/%s: no memory", x->target.parent, x->target.name);
    int fd = openat(x->target.temp_fd, TARGET_MARKER,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    rc = fd < 0 ? -errno : write_all(fd, 0, x->marker, x->marker_bytes);
    if (!rc)
        return finish_file(x, TARGET_MARKER, fd, error);
    if (fd >= 0)
        close(fd);
    return refuse_write(x, TARGET_MARKER, rc, error);
}

/* All but the small files: the weights with their headers, the copies. */
static uint64_t needed_bytes(const struct export_layout *layout, const struct hf_model *model)
{
    uint64_t bytes = layout->total_bytes;
    for (uint32_t i = 0; i < layout->file_count; i++)
        bytes += layout->files[i].header_bytes;
    for (size_t i = 0; i < model->extra_count; i++)
        bytes += model->extras[i].input.size_bytes;
    return bytes;
}

static int check_space(const struct target *target, const struct export_layout *layout,
                       const struct hf_model *model, struct hst_error *error)
{
    struct statvfs fs;
    if (fstatvfs(target->parent_fd, &fs))
        return 0; /* reserve will tell */
    char needed[TEXT_BYTES], left[TEXT_BYTES];
    uint64_t need = needed_bytes(layout, model), have = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (have >= need)
        return 0;
    return fail(error, FAIL_DISK_SPACE, -ENOSPC,
                "%s/%s: the export needs %s, the disk has %s free. Fix: free some space, or "
                "export to another disk",
                target->parent, target->name, text_size(need, needed), text_size(have, left));
}

static int make_layout(const struct hf_export_desc *desc, struct export_layout *layout,
                       struct hst_error *error)
{
    int rc = export_layout_create(desc, layout);
    if (!rc)
        return 0;
    return fail(error, FAIL_EXPORT, rc, "%s: %s", desc->directory,
                rc == -ENOMEM ? "no memory" : "these tensors cannot be stored as safetensors");
}

static int fill(struct hf_export *x, const struct hf_export_desc *desc, struct hst_error *error)
{
    x->marker_out = open_memstream(&x->marker, &x->marker_bytes);
    x->fds = malloc(x->layout.file_count * sizeof *x->fds);
    if (!x->marker_out || !x->fds)
        return fail(error, FAIL_EXPORT, -ENOMEM, "%s: no memory", desc->directory);
    for (uint32_t i = 0; i < x->layout.file_count; i++)
        x->fds[i] = -1;
    fprintf(x->marker_out, "%s", TARGET_MARKER_TITLE);
    int rc = target_create_temp(&x->target, error);
    if (!rc)
        rc = check_space(&x->target, &x->layout, desc->model, error);
    if (!rc)
        rc = create_weights(x, error);
    if (!rc)
        rc = write_config(x, desc, error);
    if (!rc)
        rc = copy_extras(x, desc->model, error);
    return rc ? rc : write_marker(x, error);
}

int hf_export_check(const struct hf_export_desc *desc, struct hst_error *error)
{
    struct target target;
    struct export_layout layout = {0};
    int rc = target_open(desc->directory, &target, error);
    if (rc)
        return hf_fix(error, rc);
    target_remove_orphans(&target); /* they may hold the room that is looked for */
    rc = make_layout(desc, &layout, error);
    if (!rc)
        rc = target_create_temp(&target, error);
    if (!rc) {
        unlinkat(target.parent_fd, target.temp, AT_REMOVEDIR);
        rc = check_space(&target, &layout, desc->model, error);
    }
    export_layout_free(&layout);
    target_close(&target);
    return hf_fix(error, rc);
}

int hf_export_begin(const struct hf_export_desc *desc, struct hf_export **export,
                    struct hst_error *error)
{
    struct hf_export *x = calloc(1, sizeof *x);
    if (!x)
        return hf_fix(error, fail(error, FAIL_EXPORT, -ENOMEM, "%s: no memory", desc->directory));
    /* The old directory is looked at when the name is taken: a refusal now would lose the
     * weights. */
    int rc = target_locate(desc->directory, &x->target, error);
    if (rc) {
        free(x);
        return hf_fix(error, rc);
    }
    target_remove_orphans(&x->target);
    rc = make_layout(desc, &x->layout, error);
    if (!rc)
        rc = fill(x, desc, error);
    if (rc)
        hf_export_abort(&x);
    else
        *export = x;
    return hf_fix(error, rc);
}

int hf_export_write(struct hf_export *x, const char *name, uint64_t offset, const void *src,
                    size_t count, struct hst_error *error)
{
    struct export_layout_tensor *t = export_layout_find(&x->layout, name);
    uint64_t end;
    if (!t || __builtin_add_overflow(offset, count, &end) || end > t->elements)
        return fail(error, FAIL_EXPORT, -EINVAL, "tensor %.80s: not part of the export, or shorter",
                    name);
    const struct export_layout_file *f = &x->layout.files[t->file];
    uint64_t at = f->header_bytes + t->begin + offset * x->layout.width;
    int rc = write_all(x->fds[t->file], at, src, count * x->layout.width);
    if (rc)
        return hf_fix(error, refuse_write(x, f->name, rc, error));
    if (spans_add(&t->written, offset, end))
        return hf_fix(error, fail(error, FAIL_EXPORT, -ENOMEM, "%.80s: no memory", name));
    return 0;
}

/* The headers; the caller writes the tensors. */
static int write_again(struct hf_export *x, struct hst_error *error)
{
    for (uint32_t i = 0; i < x->layout.file_count; i++) {
        const struct export_layout_file *f = &x->layout.files[i];
        int rc = write_all(x->fds[i], 0, f->header, f->header_bytes);
        if (rc)
            return refuse_write(x, f->name, rc, error);
    }
    return 0;
}

static int sync_all(struct hf_export *x, struct hst_error *error)
{
    for (uint32_t i = 0; i < x->layout.file_count; i++)
        if (fsync(x->fds[i]))
            return refuse_write(x, x->layout.files[i].name, -errno, error);
    return fsync(x->target.temp_fd) ? refuse_write(x, "the directory", -errno, error) : 0;
}

static int finish(struct hf_export *x, struct hst_error *error)
{
    for (size_t i = 0; i < x->layout.tensor_count; i++) {
        const struct export_layout_tensor *t = &x->layout.tensors[i];
        if (!spans_cover(&t->written, t->elements))
            return fail(error, FAIL_EXPORT, -EINVAL,
                        "%s/%s: tensor %.80s was not written completely", x->target.parent,
                        x->target.name, t->name);
    }
    int rc = x->again ? write_again(x, error) : 0;
    return rc ? rc : sync_all(x, error);
}

/* After a sync that failed the system may count pages as written that are not: one that succeeds
   later says nothing of them. */
int hf_export_sync(struct hf_export *x, struct hst_error *error)
{
    int rc = x->synced ? 0 : finish(x, error);
    x->synced = rc == 0;
    for (size_t i = 0; i < x->layout.tensor_count && rc; i++)
        x->layout.tensors[i].written.count = 0;
    x->again = rc != 0;
    return hf_fix(error, rc);
}

static void release(struct hf_export *x)
{
    for (uint32_t i = 0; x->fds && i < x->layout.file_count; i++)
        if (x->fds[i] >= 0)
            close(x->fds[i]);
    if (x->marker_out)
        fclose(x->marker_out);
    free(x->marker);
    free(x->fds);
    export_layout_free(&x->layout);
    target_close(&x->target);
    free(x);
}

int hf_export_commit(struct hf_export **export, struct hst_error *error)
{
    struct hf_export *x = *export;
    int rc = hf_export_sync(x, error);
    if (rc) {
        hf_export_abort(export);
        return rc;
    }
    rc = target_replace(&x->target, error);
    release(x);
    *export = NULL;
    return hf_fix(error, rc);
}

void hf_export_abort(struct hf_export **export)
{
    struct hf_export *x = *export;
    if (!x)
        return;
    target_remove_temp(&x->target);
    release(x);
    *export = NULL;
}
