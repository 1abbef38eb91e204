/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of a run: the likeliest id behind each prompt, then the likeliest behind that, and so on.
 * There is no cache of keys and values. Each new token is one forward over all prompts at once, as
 * an evaluation makes it, which runs wherever a step runs. Nothing of it reaches the weights.
 * Several ranks make those that lie in their parts of the batch, and tell each other what they
 * found.
 */
#include "base/now.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_BYTES 1000u /* of a prompt, its last ones, and of what is said, its first ones: */
#define TEXT_MOST    8000u /* a line of the log is read by programs that limit lines */
#define SHOWN_BYTES  200u

/* ---- the prompts ---- */

static const char *source_of(const struct train *t)
{
    return t->options->eval ? t->options->data ? "--eval nor --data" : "--eval" : "--data";
}

/* Those of --eval, where it has some: what is asked is no part of what is trained on then. */
static int find_prompts(struct train *t)
{
    struct prompts *p = &t->samples.prompts;
    const uint64_t most = t->options->samples;
    int native = t->options->eval ? data_prompts(t->eval.data, most, p, t->error) : 0;
    if (!native && !p->path && t->data) {
        prompts_free(p);
        native = data_prompts(t->data, most, p, t->error);
    }
    return native;
}

/* An id of a prompt that the file has no bytes of: of a model whose vocabulary is larger, or of
 * another tokenizer. */
static int check_bytes(const struct train *t)
{
    const struct prompts *p = &t->samples.prompts;
    for (uint64_t i = 0; i < p->count; i++)
        for (uint64_t k = p->starts[i]; k < p->starts[i + 1]; k++)
            if (p->ids[k] >= p->id_count)
                return fail(t->error, FAIL_VALUE, -EINVAL,
                            "prompt %" PRIu64 " of %s has the id %" PRIu32 ", and its bytes are "
                            "those of the ids below %" PRIu64 ". Fix: a file that prep made with "
                            "the model's tokenizer, or leave --samples out.",
                            i + 1, p->path, p->ids[k], p->id_count);
    return 0;
}

static int check_prompts(const struct train *t)
{
    const struct prompts *p = &t->samples.prompts;
    const struct train_options *o = t->options;
    if (!p->path)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "--samples %" PRIu64 " needs prompts, and %s%s has any. Fix: a token file that "
                    "prep made with --prompts, or leave --samples out.",
                    o->samples, o->eval && o->data ? "neither " : "no file of ", source_of(t));
    if (p->id_count == 0)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "%s has prompts, but not the bytes that ids stand for: what --samples make is "
                    "no text. Fix: a file with the tensor bytes, or leave --samples out.",
                    p->path);
    if (p->count < o->samples)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "--samples %" PRIu64 ", and %s has %" PRIu64
                    " prompt%s. Fix: --samples %" PRIu64 ".",
                    o->samples, p->path, p->all, text_s(p->all), p->all);
    for (uint64_t i = 0; i < p->count; i++)
        if (p->starts[i + 1] - p->starts[i] > o->seq_len)
            return fail(t->error, FAIL_VALUE, -EINVAL,
                        "prompt %" PRIu64 " of %s has %" PRIu64 " tokens, and a sequence of "
                        "--seq-len %" PRIu64 " has no room for a new one. Fix: a larger --seq-len, "
                        "or a shorter prompt.",
                        i + 1, p->path, p->starts[i + 1] - p->starts[i], o->seq_len);
    return check_bytes(t);
}

/* ---- where they lie ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* This is where the next one may lie. */
struct place {
    uint64_t row, column;
};

/* Packed runs have them side by side, as documents; else each has a row. The last new token is no
 * input. */
static void lay_out(const struct train *t, struct train_sample *sample, struct place *next)
{
    const uint64_t length = t->options->seq_len;
    const uint64_t rows = t->options->engine.batch_tokens / length; /* of a batch */
    const uint64_t inputs = sample->length + sample->most - 1;
    if (next->column > 0 && (!data_holds_documents(t->data) || next->column + inputs > length))
        *next = (struct place){next->row + 1, 0};
    sample->sweep_row = next->row / rows * rows;
    sample->begin = (next->row - sample->sweep_row) * length + next->column;
    next->column += inputs;
}

/* A time's sweeps are those of each batch's longest sample. */
static void count_sweeps(struct train_samples *s)
{
    uint64_t longest = 0;
    for (uint64_t i = 0; i < s->prompts.count; i++) {
        const bool begins = i == 0 || s->list[i].sweep_row != s->list[i - 1].sweep_row;
        s->sweeps += begins ? longest : 0;
        longest = begins || s->list[i].most > longest ? s->list[i].most : longest;
    }
    s->sweeps += longest;
}

static void lay_out_all(struct train *t)
{
    struct train_samples *s = &t->samples;
    const uint64_t most =
        t->options->sample_tokens ? t->options->sample_tokens : TRAIN_SAMPLE_TOKENS;
    struct place next = {0};
    uint32_t *ids = s->ids;
    for (uint64_t i = 0; i < s->prompts.count; i++) {
        struct train_sample *sample = &s->list[i];
        sample->length = s->prompts.starts[i + 1] - s->prompts.starts[i];
        sample->most = least(most, t->options->seq_len - sample->length + 1);
        sample->ids = ids;
        ids += sample->most;
        lay_out(t, sample, &next);
    }
    s->rows = next.row + 1;
    count_sweeps(s);
}

static int reserve(struct train *t)
{
    struct train_samples *s = &t->samples;
    const uint64_t count = s->prompts.count, wish = t->options->sample_tokens;
    const uint64_t most = least(wish ? wish : TRAIN_SAMPLE_TOKENS, t->options->seq_len);
    s->list = calloc(count, sizeof *s->list);
    s->ids = calloc(count * most, sizeof *s->ids);
    return s->list && s->ids ? 0
                             : fail(t->error, FAIL_BUDGET, -ENOMEM,
                                    "no memory for the samples. Fix: fewer --samples.");
}

int train_samples_open(struct train *t)
{
    if (!t->options->samples || !(t->data || t->eval.data)) /* of a plan that names no data */
        return 0;
    int native = find_prompts(t);
    native = native ? native : check_prompts(t);
    native = native ? native : reserve(t);
    if (native)
        return native;
    lay_out_all(t);
    if (t->source)
        t->samples.end_count = hf_model_ends(t->source, t->samples.ends, TRAIN_ENDS_MOST);
    return 0;
}

void train_samples_close(struct train *t)
{
    prompts_free(&t->samples.prompts);
    free(t->samples.list);
    free(t->samples.ids);
    t->samples = (struct train_samples){0};
}

/* ---- one time ---- */

/* t->batch has this rank's part at its begin, whatever else it has room for. */
static bool is_own(const struct train *t, const struct train_sample *sample)
{
    return sample->begin >= t->part.first_token &&
           sample->begin - t->part.first_token < t->part.tokens;
}

static uint64_t own_begin(const struct train *t, const struct train_sample *sample)
{
    return sample->begin - t->part.first_token;
}

/* A token that no sample has sees itself alone, and nothing sees it. */
static void clear(struct train *t)
{
    const struct data_batch *to = &t->batch;
    for (uint64_t i = 0; i < t->part.tokens; i++) {
        to->inputs[i] = 0;
        to->targets[i] = DATA_NO_TARGET;
        if (data_holds_documents(t->data)) {
            to->first[i] = (uint32_t)(i % t->options->seq_len);
            to->position[i] = 0;
        }
    }
}

static void put_prompt(struct train *t, uint64_t i)
{
    struct train_sample *sample = &t->samples.list[i];
    const struct prompts *p = &t->samples.prompts;
    sample->made = 0;
    sample->ended = sample->lost = false;
    if (!is_own(t, sample))
        return;
    const uint64_t begin = own_begin(t, sample);
    memcpy(t->batch.inputs + begin, p->ids + p->starts[i], sample->length * sizeof *p->ids);
    for (uint64_t k = 0; data_holds_documents(t->data) && k < sample->length + sample->most - 1;
         k++) {
        t->batch.first[begin + k] = (uint32_t)(begin % t->options->seq_len);
        t->batch.position[begin + k] = (uint32_t)k;
    }
}

static bool is_end(const struct train_samples *s, uint32_t id)
{
    for (size_t i = 0; i < s->end_count; i++)
        if (s->ends[i] == id)
            return true;
    return false;
}

/* The last of its tokens, behind which the next one is looked for: of this rank's part. */
static uint64_t last_of(const struct train *t, const struct train_sample *sample)
{
    return own_begin(t, sample) + sample->length + sample->made - 1;
}

/* An id, or this. */
#define NO_ID (INT64_C(1) << 32)

static int64_t found_id(const struct llama_choice *choice)
{
    return choice->logit == -INFINITY ? NO_ID : (int64_t)choice->id;
}

static void take(struct train *t, struct train_sample *sample, int64_t found)
{
    sample->lost = found == NO_ID;
    if (sample->lost)
        return;
    sample->ended = is_end(&t->samples, (uint32_t)found);
    sample->ids[sample->made++] = (uint32_t)found;
    if (is_own(t, sample) && !sample->ended && sample->made < sample->most)
        t->batch.inputs[last_of(t, sample)] = (uint32_t)found;
}

static bool goes_on(const struct train_sample *sample)
{
    return !sample->ended && !sample->lost && sample->made < sample->most;
}

/* This is what a sweep asks for, and what all ranks have found. */
struct asking {
    struct llama_choice *choices; /* this rank's own: room for all */
    int64_t *found;               /* of all; behind them who wishes to stop */
};

static int choose(struct train *t, const struct asking *asking, size_t own)
{
    const struct data_batch *to = &t->batch;
    const bool packed = data_holds_documents(t->data);
    const struct llama_batch batch = {.inputs = to->inputs,
                                      .targets = to->targets,
                                      .first = packed ? to->first : NULL,
                                      .position = packed ? to->position : NULL};
    const int native = llama_choose(t->model, t->engine, &batch, asking->choices, own);
    return native ? train_engine_failed(t, native, "the samples") : 0;
}

/* found[i] ← of the ith that goes on, which one rank has looked for. */
static int share(struct train *t, uint64_t first, uint64_t end, const struct asking *asking,
                 size_t asked)
{
    const struct train_sample *list = t->samples.list;
    size_t own = 0, at = 0;
    for (uint64_t i = first; i < end; i++)
        if (goes_on(&list[i]))
            asking->found[at++] = is_own(t, &list[i]) ? found_id(&asking->choices[own++]) : 0;
    asking->found[asked] = train_stop_wish(t);
    const int native = hst_engine_sum(t->engine, asking->found, asked + 1);
    train_stop_count(t, native ? 0 : (double)asking->found[asked]);
    return native ? train_engine_failed(t, native, "the samples") : 0;
}

/* One more token of each of the samples [first, end) that go on. *asked: how many did. */
static int sweep(struct train *t, uint64_t first, uint64_t end, const struct asking *asking,
                 size_t *asked)
{
    struct train_sample *list = t->samples.list;
    size_t own = 0;
    *asked = 0;
    for (uint64_t i = first; i < end; i++) {
        *asked += goes_on(&list[i]);
        if (goes_on(&list[i]) && is_own(t, &list[i]))
            asking->choices[own++].token = last_of(t, &list[i]);
    }
    int native = *asked ? train_stopped(t) : 0;
    if (native || *asked == 0)
        return native;
    native = choose(t, asking, own);
    native = native ? native : share(t, first, end, asking, *asked);
    for (uint64_t i = first, at = 0; i < end && !native; i++)
        if (goes_on(&list[i]))
            take(t, &list[i], asking->found[at++]);
    return native;
}

/* These are those of one batch. */
static int make_batch(struct train *t, uint64_t first, uint64_t end, const struct asking *asking)
{
    size_t asked = 1;
    int native = 0;
    clear(t);
    for (uint64_t i = first; i < end; i++)
        put_prompt(t, i);
    while (!native && asked) {
        const double begin_s = now_s();
        native = sweep(t, first, end, asking, &asked);
        if (!native)
            train_samples_tell_forward(t, now_s() - begin_s);
    }
    return native;
}

static int make_batches(struct train *t, const struct asking *asking)
{
    const uint64_t count = t->samples.prompts.count;
    const struct train_sample *list = t->samples.list;
    int native = 0;
    for (uint64_t first = 0, end = 0; first < count && !native; first = end) {
        while (end < count && list[end].sweep_row == list[first].sweep_row)
            end++;
        native = make_batch(t, first, end, asking);
    }
    return native;
}

static int make_all(struct train *t)
{
    const uint64_t count = t->samples.prompts.count;
    const struct asking asking = {calloc(count, sizeof *asking.choices),
                                  calloc(count + 1, sizeof *asking.found)};
    int native = -ENOMEM;
    if (asking.choices && asking.found)
        native = make_batches(t, &asking);
    else
        fail(t->error, FAIL_BUDGET, native, "no memory for the samples. Fix: fewer --samples.");
    free(asking.choices);
    free(asking.found);
    return native;
}

/* ---- what they say ---- */

/* Bytes of an id, U+FFFD of one that the file has none of: a vocabulary may have more than its
 * tokenizer. */
static const unsigned char *bytes_of(const struct prompts *p, uint32_t id, size_t *count)
{
    static const unsigned char unknown[] = {0xef, 0xbf, 0xbd};
    const unsigned char *bytes = prompts_bytes(p, id, count);
    if (bytes)
        return bytes;
    *count = sizeof unknown;
    return unknown;
}

/* Ids as text, as many of the first ones as have room. A byte of 0 becomes one that is no UTF-8. */
static void put_ids(const struct prompts *p, const uint32_t *ids, uint64_t count, char *text,
                    size_t room)
{
    size_t used = 0, bytes;
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *from = bytes_of(p, ids[i], &bytes);
        if (bytes >= room - used)
            break;
        for (size_t k = 0; k < bytes; k++)
            text[used++] = from[k] ? (char)from[k] : (char)0xff;
    }
    text[used] = '\0';
}

/* The last ids of a prompt that have room. */
static void put_prompt_text(const struct prompts *p, uint64_t i, char text[PROMPT_BYTES])
{
    uint64_t first = p->starts[i + 1];
    size_t used = 0, bytes;
    while (first > p->starts[i]) {
        (void)prompts_bytes(p, p->ids[first - 1], &bytes);
        used += bytes;
        if (used >= PROMPT_BYTES)
            break;
        first--;
    }
    put_ids(p, p->ids + first, p->starts[i + 1] - first, text, PROMPT_BYTES);
}

/* In one line, of which a terminal obeys nothing. */
static void shown(const char *text, char line[SHOWN_BYTES])
{
    size_t used = 0, left = strlen(text);
    while (left && used + 8 < SHOWN_BYTES) {
        const size_t n = utf8_shown(text, left), step = n ? n : 1;
        if (n)
            memcpy(line + used, text, n);
        else
            line[used] = text[0] == '\n' || text[0] == '\t' ? ' ' : '?';
        used += step;
        text += step;
        left -= step;
    }
    memcpy(line + used, left ? "..." : "", left ? 4 : 1);
}

static int tell(struct train *t, uint64_t step, uint64_t i, double seconds)
{
    const struct train_samples *s = &t->samples;
    const struct train_sample *sample = &s->list[i];
    char prompt[PROMPT_BYTES] = "", text[TEXT_MOST] = "", line[SHOWN_BYTES];
    put_prompt_text(&s->prompts, i, prompt);
    put_ids(&s->prompts, sample->ids, sample->made - sample->ended, text, sizeof text);
    const struct sample_report report = {
        .step = step,
        .steps = t->options->steps,
        .number = i + 1,
        .count = s->prompts.count,
        .prompt = prompt,
        .text = text,
        .tokens = sample->made,
        .ended = sample->ended,
        .lost = sample->lost,
        .seconds = seconds,
    };
    if (!t->options->quiet) {
        shown(text, line);
        activity_interrupt();
        say("sample %" PRIu64 "/%" PRIu64 " after step %" PRIu64 "/%" PRIu64 ": %s%s\n", i + 1,
            s->prompts.count, step, t->options->steps, line,
            sample->lost ? " (ends here: no logit of the next token is a number)" : "");
    }
    return run_log_sample(&t->log, &report, t->error);
}

int train_sample(struct train *t, uint64_t step)
{
    struct train_samples *s = &t->samples;
    const double begin_s = now_s();
    char what[48];
    if (!s->list)
        return 0;
    snprintf(what, sizeof what, "sampling after step %" PRIu64, step);
    progress_begin(&t->progress, what);
    int native = make_all(t);
    const double seconds = now_s() - begin_s;
    if (native)
        return native;
    for (uint64_t i = 0; i < s->prompts.count; i++)
        train_keep_going(t, tell(t, step, i, seconds));
    s->times++;
    s->seconds += now_s() - begin_s;
    return 0;
}

/* All else is done by then: a stop ends them alone, on all ranks. */
int train_sample_last(struct train *t)
{
    t->stop.together = t->stop.together || (t->samples.wait && t->part.ranks > 1);
    const int native = t->samples.wait ? train_sample(t, t->done) : 0;
    if (native != -ECANCELED || !train_stopped(t))
        return native;
    *t->error = (struct hst_error){0};
    cli_warn(CLI_SAMPLES,
             "no samples after step %" PRIu64 ": the run was asked to stop (%s) when all else was "
             "done, and ends as without them",
             t->done, train_signal_words(t));
    return 0;
}

void train_samples_tell(const struct train *t)
{
    const struct train_samples *s = &t->samples;
    if (s->times)
        printf("sampled %" PRIu64 " time%s in %.1f s\n", s->times, text_s(s->times), s->seconds);
}
