/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which options a DeepSpeed configuration means. A key that is absent from a section that
 * is there has DeepSpeed's default; a section that is absent decides nothing. "auto" leaves the
 * value to the command line, and has what transformers' Trainer takes by default where that has
 * none.
 */
#include "cli/config/ds_config.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct made {
    const struct ds_config *c;
    struct ds_run run;
    struct ds_options *o;
    struct hst_error *error;
};

/* ---- what stands in the file ---- */

struct found {
    const struct ds_key *key;
    const struct hjson_entry *entry; /* null: absent */
    bool automatic;
};

static struct found get(const struct ds_config *c, const char *path)
{
    const struct ds_key *key = ds_key_find(path);
    assert(key);
    const struct hjson_entry *e = c->of[key - ds_keys];
    return (struct found){key, e, e && e->type == JSN_STRING && strcmp(e->text, "auto") == 0};
}

static bool is_on(const struct ds_config *c, const char *path)
{
    const struct found f = get(c, path);
    return f.entry && (f.entry->type == JSN_TRUE || strcmp(f.entry->text, "true") == 0);
}

/* A text of the file or DeepSpeed's default; "auto" is the default, too. */
static const char *text_of(const struct ds_config *c, const char *path)
{
    const struct found f = get(c, path);
    return f.entry && !f.automatic ? f.entry->text : f.key->absent ? f.key->absent : "";
}

/* ---- adding ---- */

static struct ds_option *add(struct made *m, const char *option, struct found from)
{
    assert(m->o->count < DS_MAX_OPTIONS);
    struct ds_option *o = &m->o->list[m->o->count++];
    *o = (struct ds_option){.option = option,
                            .key = from.key,
                            .entry = from.entry,
                            .why = from.automatic ? DS_AUTO
                                   : from.entry   ? DS_SAID
                                                  : DS_ABSENT};
    return o;
}

/* Another key of the file is about the option, too. */
static void share(struct ds_option *o, struct found with)
{
    size_t i = 0;
    while (i < DS_MAX_ALSO && o->also[i])
        i++;
    assert(i < DS_MAX_ALSO);
    if (with.entry && with.entry != o->entry)
        o->also[i] = with.entry;
}

/* Its value; a text that is too long for an option is refused when it is used. */
static int set(struct made *m, struct ds_option *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int set(struct made *m, struct ds_option *option, const char *format, ...)
{
    char *dst = m->o->texts + m->o->used;
    const size_t room = sizeof m->o->texts - m->o->used;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(dst, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room)
        return ds_refuse(m->c, option->entry, m->error, "it is too long. Fix: a shorter one.");
    m->o->used += (size_t)n + 1;
    option->value = dst;
    return 0;
}

/* A key that is an option as it stands: what the file says, "auto", or the default. */
static int plain(struct made *m, const char *path, const char *option)
{
    const struct found f = get(m->c, path);
    const char *text = f.automatic ? f.key->automatic : f.entry ? f.entry->text : f.key->absent;
    return text ? set(m, add(m, option, f), "%s", text) : 0;
}

/* ---- the batch ---- */

/* A factor of the batch: 0 where it is absent. */
static double count_of(struct found f)
{
    if (!f.entry)
        return 0;
    return strtod(f.automatic && f.key->automatic ? f.key->automatic : f.entry->text, NULL);
}

static int check_product(struct made *m, double train, double micro, double steps)
{
    const struct found f = get(m->c, "train_batch_size");
    const double ranks = m->run.ranks;
    const double product = (micro > 0 ? micro : 1) * (steps > 0 ? steps : 1) * ranks;
    char text[300];
    if (micro > 0 && steps > 0 ? product == train : fmod(train, product) == 0)
        return 0;
    snprintf(text, sizeof text,
             "%s %.0f, that of train_micro_batch_size_per_gpu, gradient_accumulation_steps and "
             "%" PRIu32 " rank%s. Fix: %.0f, or other factors.",
             micro > 0 && steps > 0 ? "it is not the product" : "it is no multiple of", product,
             m->run.ranks, m->run.ranks == 1 ? "" : "s", product);
    return ds_refuse(m->c, f.entry, m->error, text);
}

static int batch(struct made *m)
{
    static const char *const paths[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps"};
    struct found f[3];
    double n[3];
    for (int i = 0; i < 3; i++) {
        f[i] = get(m->c, paths[i]);
        n[i] = count_of(f[i]);
        if (f[i].entry && !f[i].automatic && n[i] < 1)
            return ds_refuse(m->c, f[i].entry, m->error, "want 1 or more. Fix: correct it there.");
    }
    const bool whole = f[0].entry && !f[0].automatic;
    if (!f[0].entry && !f[1].entry)
        return f[2].entry ? ds_refuse(m->c, f[2].entry, m->error,
                                      "it is a factor of a batch that the file does not say. Fix: "
                                      "train_batch_size.")
                          : 0;
    if (whole) {
        const int bad =
            check_product(m, n[0], f[1].automatic ? 0 : n[1], f[2].automatic ? 0 : n[2]);
        if (bad)
            return bad;
    }
    const struct found from = whole || !f[1].entry ? f[0] : f[1];
    const double micro = n[1] > 0 ? n[1] : strtod(f[1].key->automatic, NULL);
    const double rows = whole ? n[0] : micro * (n[2] > 0 ? n[2] : 1) * m->run.ranks;
    struct ds_option *o = add(m, "batch-tokens", from);
    o->refusal =
        "a batch is a number of sequences, and how long one is is not said. Fix: --seq-len "
        "with the tokens of a sequence, or --batch-tokens.";
    for (int i = 0; i < 3; i++)
        share(o, f[i]);
    return m->run.seq_len ? set(m, o, "%.0f", rows * (double)m->run.seq_len) : 0;
}

/* ---- the optimizer ---- */

static int betas(struct made *m)
{
    const struct found f = get(m->c, "optimizer.params.betas");
    const struct hjson *h = &m->c->hjson;
    const char *pair[2] = {NULL, NULL};
    size_t count = 0;
    if (!f.entry || f.automatic)
        return plain(m, "optimizer.params.betas", "betas");
    for (size_t i = (size_t)(f.entry - h->entries) + 1; i < h->count; i++)
        if (&h->entries[h->entries[i].parent] == f.entry && ++count <= 2)
            pair[count - 1] = h->entries[i].text;
    if (count != 2)
        return ds_refuse(m->c, f.entry, m->error, "want two numbers. Fix: [0.9, 0.999].");
    return set(m, add(m, "betas", f), "%s,%s", pair[0], pair[1]);
}

/* An absent number is that of the class; null: the class has no such number. */
struct ds_class {
    const char *type, *option;
    const char *lr, *betas, *eps, *momentum;
};

/* Lower case: DeepSpeed's own, in any case. SGD is torch.optim's, which it finds by its name. */
static const struct ds_class classes[] = {
    {"adamw", "adamw", "1e-3", "0.9,0.999", "1e-8", NULL},
    {"adam", "adamw", "1e-3", "0.9,0.999", "1e-8", NULL},
    {"lion", "lion", "1e-3", "0.9,0.999", NULL, NULL},
    {"adagrad", "adagrad", "1e-2", NULL, "1e-10", NULL},
    {"SGD", "sgd", "1e-3", NULL, NULL, "0"},
};

static const struct ds_class *class_named(const char *type)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(classes[i].type, "SGD") == 0 ? strcmp(type, "SGD") == 0
                                                : strcasecmp(type, classes[i].type) == 0)
            return &classes[i];
    return NULL;
}

const char ds_optimizers[] = "AdamW, Adam, Lion, Adagrad and SGD";

bool ds_has_optimizer(const char *type)
{
    return class_named(type) != NULL;
}

static const struct ds_class *class_of(const struct ds_config *c)
{
    const struct found type = get(c, "optimizer.type");
    return type.entry ? class_named(type.entry->text) : NULL;
}

/* A number of a class, which may have none. */
static int number(struct made *m, const char *path, const char *option, const char *absent)
{
    const struct found f = get(m->c, path);
    const char *text = f.automatic ? f.key->automatic : f.entry ? f.entry->text : absent;
    if (f.entry && !absent)
        return ds_refuse(m->c, f.entry, m->error,
                         "optimizer.type has no such number. Fix: leave it out.");
    return text ? set(m, add(m, option, f), "%s", text) : 0;
}

static int optimizer(struct made *m)
{
    const struct found section = get(m->c, "optimizer"), type = get(m->c, "optimizer.type");
    const struct found decay = get(m->c, "optimizer.params.weight_decay");
    const struct found pair = get(m->c, "optimizer.params.betas");
    const struct ds_class *k = class_of(m->c);
    if (!section.entry)
        return 0;
    if (m->run.own_optimizer) { /* whose numbers are its own, but for the rate */
        add(m, "optimizer", type.entry ? type : section)->refusal = "the command line has one";
        return 0;
    }
    if (!type.entry)
        return ds_refuse(m->c, section.entry, m->error, "it has no type. Fix: \"AdamW\".");
    if (!k)
        return ds_refuse(m->c, type.entry, m->error,
                         "of DeepSpeed's optimizers hoistway has AdamW, Adam (which is it where "
                         "adam_w_mode is not false), Lion, Adagrad and SGD. Fix: one of them.");
    const struct found torch = get(m->c, "optimizer.params.torch_adam");
    if (strcmp(k->option, "adamw") != 0 && is_on(m->c, "optimizer.params.torch_adam"))
        return ds_refuse(m->c, torch.entry, m->error,
                         "optimizer.type is not Adam. Fix: leave it out.");
    int bad = set(m, add(m, "optimizer", type), "%s", k->option);
    if (!bad && k->betas && pair.entry && !pair.automatic)
        bad = betas(m);
    else if (!bad)
        bad = number(m, "optimizer.params.betas", "betas", k->betas);
    bad = bad ? bad : number(m, "optimizer.params.momentum", "momentum", k->momentum);
    bad = bad ? bad : number(m, "optimizer.params.eps", "eps", k->eps);
    if (!bad && !decay.entry && is_on(m->c, "optimizer.params.torch_adam")) {
        struct ds_option *o = add(m, "weight-decay", decay);
        share(o, torch);
        return set(m, o, "0.01");
    }
    return bad ? bad : plain(m, "optimizer.params.weight_decay", "weight-decay");
}

/* ---- the rates ---- */

static double real_of(const struct ds_config *c, const char *path)
{
    const struct found f = get(c, path);
    const char *text = f.entry && !f.automatic ? f.entry->text : f.key->absent;
    return text ? strtod(text, NULL) : 0;
}

/* A count of steps, 0 for "auto"; of an absent one what the table has, or 0. */
static int steps_of(struct made *m, const char *path, uint64_t *steps)
{
    const struct found f = get(m->c, path);
    const double n = f.automatic ? 0 : real_of(m->c, path);
    if (f.entry && !f.automatic && !(n >= 1 && n <= 1e12))
        return ds_refuse(m->c, f.entry, m->error, "want 1 to 1e12. Fix: correct it there.");
    *steps = (uint64_t)n;
    return 0;
}

static int peer_of(struct made *m, struct schedule_peer *p)
{
    const bool cosine = p->kind == PEER_WARMUP_COSINE;
    const struct found total = get(m->c, "scheduler.params.total_num_steps");
    const struct found type = get(m->c, "scheduler.params.warmup_type");
    const char *begin =
        cosine ? "scheduler.params.warmup_min_ratio" : "scheduler.params.warmup_min_lr";
    const char *word = text_of(m->c, "scheduler.params.warmup_type");
    p->linear = strcmp(word, "linear") == 0;
    p->lr_begin = real_of(m->c, begin);
    p->lr_end = real_of(m->c, "scheduler.params.cos_min_ratio");
    if (!p->linear && strcmp(word, "log") != 0)
        return ds_refuse(m->c, type.entry, m->error,
                         "want \"log\" or \"linear\". Fix: correct it there.");
    if (!(p->lr_begin >= 0 && p->lr_begin <= 1))
        return ds_refuse(m->c, get(m->c, begin).entry, m->error,
                         "want 0 to 1. Fix: correct it there.");
    if (!(p->lr_end >= 0 && p->lr_end <= 1))
        return ds_refuse(m->c, get(m->c, "scheduler.params.cos_min_ratio").entry, m->error,
                         "want 0 to 1. Fix: correct it there.");
    if (p->kind != PEER_WARMUP && !total.entry)
        return ds_refuse(m->c, get(m->c, "scheduler").entry, m->error,
                         "it has no total_num_steps. Fix: \"auto\", or the steps of the run.");
    const int bad = steps_of(m, "scheduler.params.warmup_num_steps", &p->warmup_steps);
    return bad ? bad : steps_of(m, "scheduler.params.total_num_steps", &p->total_steps);
}

static int scheduler(struct made *m)
{
    const struct found section = get(m->c, "scheduler"), type = get(m->c, "scheduler.type");
    struct schedule_peer peer = {.kind = PEER_NONE};
    if (section.entry && m->run.own_schedule)
        add(m, "schedule", section)->refusal = "the command line has --schedule";
    if (!section.entry || m->run.own_schedule)
        return 0;
    for (int i = 0; PEER_NAMES[i] && type.entry; i++)
        if (strcmp(type.entry->text, PEER_NAMES[i]) == 0)
            peer.kind = (enum peer_kind)(PEER_WARMUP + i);
    if (peer.kind == PEER_NONE)
        return ds_refuse(
            m->c, type.entry ? type.entry : section.entry, m->error,
            "of DeepSpeed's schedulers hoistway has WarmupLR, WarmupDecayLR and "
            "WarmupCosineLR. Fix: one of them as its type, or --schedule with --warmup, "
            "which then count in its place.");
    const int bad = peer_of(m, &peer);
    if (!bad)
        m->o->scheduler = peer;
    return bad;
}

/* The peak: that of the scheduler, where its class has one, else the optimizer's. */
static int peak(struct made *m)
{
    const enum peer_kind kind = m->o->scheduler.kind;
    const struct found most = get(m->c, "scheduler.params.warmup_max_lr");
    const bool own = kind == PEER_WARMUP || kind == PEER_WARMUP_DECAY;
    const bool optimizer = get(m->c, "optimizer").entry != NULL;
    const struct ds_class *k = class_of(m->c);
    const size_t made = m->o->count;
    int bad = 0;
    if (own && most.entry && (!most.automatic || !optimizer))
        bad = plain(m, "scheduler.params.warmup_max_lr", "lr");
    else if (kind == PEER_WARMUP_DECAY && !most.entry)
        bad = set(m, add(m, "lr", most), "0.001");
    else if (optimizer)
        bad = number(m, "optimizer.params.lr", "lr", k ? k->lr : "1e-3");
    if (!bad && m->o->count > made) {
        share(&m->o->list[made], most);
        share(&m->o->list[made], get(m->c, "optimizer.params.lr"));
    }
    return bad;
}

/* ---- precision ---- */

static int loss_scale(struct made *m)
{
    const struct found fixed = get(m->c, "fp16.loss_scale");
    const double scale = fixed.entry && !fixed.automatic ? strtod(fixed.entry->text, NULL) : 0;
    if (scale != 0 && !(scale >= 1 && scale <= 0x1p32))
        return ds_refuse(m->c, fixed.entry, m->error, "want 0, or 1 to 2^32. Fix: correct it.");
    if (scale != 0) {
        const int bad = set(m, add(m, "loss-scale", fixed), "%s", fixed.entry->text);
        return bad ? bad : set(m, add(m, "loss-scaling", fixed), "static");
    }
    const struct found f = get(m->c, "fp16.initial_scale_power");
    const char *power = f.entry && !f.automatic ? f.entry->text : f.key->absent;
    const double p = strtod(power, NULL);
    if (p < 0 || p > 32)
        return ds_refuse(m->c, f.entry, m->error, "want 0 to 32. Fix: correct it there.");
    struct ds_option *o = add(m, "loss-scale", f);
    share(o, fixed);
    return set(m, o, "%.0f", exp2(p));
}

/* The command line has --precision, and its section does not count any more: nor does this. */
static void yield(struct made *m, const char *path)
{
    const struct found f = get(m->c, path);
    if (f.entry)
        add(m, "precision", f)->refusal = "the command line has --precision";
}

/* The section that decides, of those that are there: what is on, what the command line names, what
 * is left open, what is off. */
static struct found deciding(const struct made *m, bool b, bool f)
{
    const struct found bf16 = get(m->c, "bf16.enabled"), fp16 = get(m->c, "fp16.enabled");
    const char *own = m->run.precision;
    const struct found named = own && strcmp(own, "fp16") == 0 ? fp16 : bf16;
    if (b || f)
        return f ? fp16 : bf16;
    if (own && named.entry)
        return named;
    if (bf16.automatic || fp16.automatic)
        return bf16.automatic ? bf16 : fp16;
    return !bf16.entry && (fp16.entry || !get(m->c, "bf16").entry) ? fp16 : bf16;
}

/* "auto" is what Trainer has without its --bf16 and --fp16: false. */
static int precision(struct made *m)
{
    const struct found bf16 = get(m->c, "bf16.enabled"), fp16 = get(m->c, "fp16.enabled");
    const bool b = is_on(m->c, "bf16.enabled"), f = is_on(m->c, "fp16.enabled");
    const char *own = m->run.precision;
    const bool states = is_on(m->c, "bf16.bf16_optimizer_states");
    const bool scaled = own ? strcmp(own, "fp16") == 0 && (f || fp16.automatic) : f;
    int bad = 0;
    if (b && f)
        return ds_refuse(m->c, fp16.entry, m->error,
                         "bf16.enabled is true, too. Fix: false for one of them.");
    if (get(m->c, "bf16").entry || get(m->c, "fp16").entry) {
        struct ds_option *o = add(m, "precision", deciding(m, b, f));
        share(o, bf16);
        share(o, fp16);
        bad = set(m, o, b ? "bf16" : f ? "fp16" : "fp32");
    }
    if (!bad && scaled)
        bad = loss_scale(m);
    if (f && !scaled) {
        yield(m, "fp16.loss_scale");
        yield(m, "fp16.initial_scale_power");
    }
    if (states && own && strcmp(own, "bf16") != 0 && (b || bf16.automatic))
        yield(m, "bf16.bf16_optimizer_states");
    else if (!bad && states)
        bad = set(m, add(m, "state", get(m->c, "bf16.bf16_optimizer_states")), "bf16");
    return bad;
}

/* ---- where things live ---- */

/* A home of what can be offloaded. */
struct home {
    const char *what; /* of --place */
    const char *device, *path, *old;
};

static const struct home homes[2] = {
    {"states", "zero_optimization.offload_optimizer.device",
     "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.cpu_offload"},
    {"weights", "zero_optimization.offload_param.device",
     "zero_optimization.offload_param.nvme_path", "zero_optimization.cpu_offload_param"}};

/* "states=dram," or nothing. */
static int home_of(struct made *m, const struct home *home, char dst[32], struct found *from)
{
    const struct found device = get(m->c, home->device);
    const char *text = text_of(m->c, home->device);
    dst[0] = '\0';
    if (!device.entry && is_on(m->c, home->old)) {
        *from = get(m->c, home->old);
        text = "cpu";
    } else if (!device.entry || device.automatic) {
        return 0;
    } else {
        *from = device;
    }
    if (strcmp(text, "none") == 0)
        return 0;
    const bool cpu = strcmp(text, "cpu") == 0;
    if (!cpu && strcmp(text, "nvme") != 0)
        return ds_refuse(m->c, device.entry, m->error,
                         "want \"none\", \"cpu\" or \"nvme\". Fix: correct it there.");
    snprintf(dst, 32, "%s=%s,", home->what, cpu ? "dram" : "nvme");
    return 0;
}

static int place(struct made *m)
{
    const bool acts = is_on(m->c, "activation_checkpointing.cpu_checkpointing");
    struct found from = get(m->c, "activation_checkpointing.cpu_checkpointing");
    char weights[32], states[32];
    int bad = home_of(m, &homes[1], weights, &from);
    bad = bad ? bad : home_of(m, &homes[0], states, &from);
    if (bad || (!states[0] && !weights[0] && !acts))
        return bad;
    struct ds_option *o = add(m, "place", from);
    for (size_t i = 0; i < 2; i++)
        share(o, get(m->c, get(m->c, homes[i].device).entry ? homes[i].device : homes[i].old));
    share(o, get(m->c, "activation_checkpointing.cpu_checkpointing"));
    bad = set(m, o, "%s%s%s", states, weights, acts ? "acts=dram," : "");
    if (!bad)
        m->o->texts[m->o->used - 2] = '\0'; /* the last comma */
    return bad;
}

static int store(struct made *m)
{
    struct found paths[2];
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct found f = get(m->c, homes[i].path);
        if (strcmp(text_of(m->c, homes[i].device), "nvme") == 0 && f.entry && !f.automatic)
            paths[count++] = f;
    }
    if (count == 0)
        return 0;
    struct ds_option *o = add(m, "store", paths[0]);
    if (count == 2)
        share(o, paths[1]);
    if (count == 2 && strcmp(paths[0].entry->text, paths[1].entry->text) != 0)
        o->refusal = "offload_param has another nvme_path, and hoistway spreads all that it stores "
                     "over all drives. Fix: one path, or --store A,B.";
    return o->refusal ? 0 : set(m, o, "%s", paths[0].entry->text);
}

static int zero(struct made *m)
{
    const struct found section = get(m->c, "zero_optimization");
    const struct found stage = get(m->c, "zero_optimization.stage");
    if (!section.entry || stage.automatic)
        return 0;
    const double n = strtod(stage.entry ? stage.entry->text : stage.key->absent, NULL);
    if (n < 0 || n > 3)
        return ds_refuse(m->c, stage.entry, m->error, "want 0 to 3. Fix: correct it there.");
    return set(m, add(m, "zero-stage", stage), "%.0f", n);
}

static int secondary(struct made *m)
{
    const struct found size = get(m->c, "zero_optimization.zero_hpz_partition_size");
    if (!size.entry || size.automatic || strtod(size.entry->text, NULL) <= 1)
        return 0;
    return set(m, add(m, "secondary", size), "node");
}

static int gather(struct made *m)
{
    static const char key[] = "zero_optimization.zero_quantized_weights";
    return is_on(m->c, key) ? set(m, add(m, "gather", get(m->c, key)), "int8") : 0;
}

static int reduce(struct made *m)
{
    static const char key[] = "zero_optimization.zero_quantized_gradients";
    return is_on(m->c, key) ? set(m, add(m, "reduce", get(m->c, key)), "int4") : 0;
}

/* ---- what is told ---- */

static int monitor(struct made *m, const char *name, const char *option, const char *ending)
{
    char path[64];
    snprintf(path, sizeof path, "%s.enabled", name);
    if (!is_on(m->c, path))
        return 0;
    struct ds_option *o = add(m, option, get(m->c, path));
    snprintf(path, sizeof path, "%s.output_path", name);
    const char *folder = text_of(m->c, path);
    share(o, get(m->c, path));
    snprintf(path, sizeof path, "%s.job_name", name);
    share(o, get(m->c, path));
    o->refusal = "it has no output_path. Fix: one, or --tfevents DIR or --csv FILE.";
    if (!folder[0])
        return 0;
    const bool slash = folder[strlen(folder) - 1] == '/';
    return set(m, o, "%s%s%s%s", folder, slash ? "" : "/", text_of(m->c, path), ending);
}

int ds_config_options(const struct ds_config *config, struct ds_run run, struct ds_options *options,
                      struct hst_error *error)
{
    struct made m = {.c = config, .run = run, .o = options, .error = error};
    options->count = 0;
    options->used = 0;
    options->scheduler = (struct schedule_peer){.kind = PEER_NONE};
    int bad = batch(&m);
    bad = bad ? bad : plain(&m, "gradient_clipping", "clip");
    bad = bad ? bad : plain(&m, "seed", "seed");
    bad = bad ? bad : optimizer(&m);
    bad = bad ? bad : scheduler(&m);
    bad = bad ? bad : peak(&m);
    bad = bad ? bad : precision(&m);
    bad = bad ? bad : zero(&m);
    bad = bad ? bad : gather(&m);
    bad = bad ? bad : reduce(&m);
    bad = bad ? bad : secondary(&m);
    bad = bad ? bad : place(&m);
    bad = bad ? bad : store(&m);
    bad = bad ? bad : monitor(&m, "tensorboard", "tfevents", "");
    return bad ? bad : monitor(&m, "csv_monitor", "csv", ".csv");
}
