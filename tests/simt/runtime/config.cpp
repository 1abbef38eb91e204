/* SPDX-License-Identifier: Apache-2.0 */
/* What HST_FAKE_CUDA says: items separated by commas, each of them known (README.md). */
#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <library_types.h>

[[noreturn]] static void die_config(const std::string &item)
{
    fprintf(
        stderr,
        "fake CUDA: HST_FAKE_CUDA has \"%s\"; known: memory=BYTES[K|M|G], "
        "overhead=BYTES[K|M|G], devices=N, cc=X.Y, "
        "driver=VERSION, model=NAME, multiprocessors=N, compute-mode=default|exclusive|prohibited, "
        "loose=0|1, streams=late|early[:STREAM]|h2d-early|random:SEED, "
        "fail=FUNCTION:CALL[+]:ERROR\n",
        item.c_str());
    abort();
}

static size_t parse_bytes(const std::string &item, const char *text)
{
    char *end;
    size_t value = strtoull(text, &end, 10);
    switch (*end) {
    case 'G':
        value <<= 10; /* fall through */
    case 'M':
        value <<= 10; /* fall through */
    case 'K':
        value <<= 10;
        end++;
    }
    if (end == text || *end)
        die_config(item);
    return value;
}

static unsigned long parse_number(const std::string &item, const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end)
        die_config(item);
    return value;
}

static hst::Fault parse_fault(const std::string &item, const std::string &value)
{
    size_t first = value.find(':'), second = value.rfind(':');
    if (first == std::string::npos || first == second)
        die_config(item);
    hst::Fault fault = {value.substr(0, first), 0, false, cudaSuccess, 0};
    char *end;
    fault.call = strtoul(value.c_str() + first + 1, &end, 10);
    fault.lasting = *end == '+';
    fault.error = (cudaError_t)atoi(value.c_str() + second + 1);
    if (!fault.call || !fault.error)
        die_config(item);
    return fault;
}

/* late, early, early:STREAM, h2d-early or random:SEED */
static void parse_order(hst::Config *config, const std::string &item, const std::string &value)
{
    size_t colon = value.find(':');
    std::string name = value.substr(0, colon);
    bool numbered = colon != std::string::npos;
    if (name == "late" && !numbered)
        config->order = hst::Order::late;
    else if (name == "h2d-early" && !numbered)
        config->order = hst::Order::h2d_early;
    else if (name == "early")
        config->order = hst::Order::early;
    else if (name == "random" && numbered)
        config->order = hst::Order::random;
    else
        die_config(item);
    if (numbered)
        config->order_number = parse_number(item, value.c_str() + colon + 1);
}

/* A number, or * for any, which is 0; moves *text to what comes behind. */
static uint64_t parse_extent(const std::string &item, const char **text)
{
    char *end;
    if (**text == '*') {
        ++*text;
        return 0;
    }
    uint64_t value = strtoull(*text, &end, 10);
    if (end == *text || !value)
        die_config(item);
    *text = end;
    return value;
}

/* TYPE[:MxNxK][:BYTES] */
static hst::Refusal parse_refusal(const std::string &item, const std::string &value)
{
    hst::Refusal refusal = {};
    size_t colon = value.find(':');
    std::string type = value.substr(0, colon);
    refusal.type = type == "bf16"  ? CUDA_R_16BF
                   : type == "f16" ? CUDA_R_16F
                   : type == "f32" ? CUDA_R_32F
                                   : -1;
    if (refusal.type < 0)
        die_config(item);
    const char *text = colon == std::string::npos ? "" : value.c_str() + colon;
    if (*text && value.find('x', colon) != std::string::npos)
        for (int i = 0; i < 3; i++) {
            if (*text++ != ":xx"[i])
                die_config(item);
            refusal.extent[i] = parse_extent(item, &text);
        }
    if (*text == ':')
        refusal.alignment = parse_number(item, text + 1);
    else if (*text)
        die_config(item);
    return refusal;
}

/* Of the two that are not the default, another process has the device. */
static int parse_mode(const std::string &item, const std::string &value)
{
    if (value == "exclusive")
        return cudaComputeModeExclusiveProcess;
    if (value == "prohibited")
        return cudaComputeModeProhibited;
    if (value != "default")
        die_config(item);
    return cudaComputeModeDefault;
}

/* As CUDA reads the variable: up to the first entry that is no index of a device. */
static std::vector<int> read_visible(const char *text, int devices)
{
    std::vector<int> visible;
    for (int i = 0; !text && i < devices; i++)
        visible.push_back(i);
    while (text && *text) {
        char *end;
        long index = strtol(text, &end, 10);
        bool number = end != text && (*end == ',' || !*end);
        if (!number || index < 0 || index >= devices)
            break;
        visible.push_back((int)index);
        text = *end ? end + 1 : end;
    }
    return visible;
}

static void parse_item(hst::Config *config, const std::string &item)
{
    size_t equals = item.find('=');
    if (equals == std::string::npos)
        die_config(item);
    std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "memory")
        config->memory_bytes = parse_bytes(item, value.c_str());
    else if (key == "overhead")
        config->overhead_bytes = parse_bytes(item, value.c_str());
    else if (key == "devices")
        config->devices = atoi(value.c_str());
    else if (key == "driver")
        config->driver = atoi(value.c_str());
    else if (key == "model")
        config->model = value;
    else if (key == "multiprocessors")
        config->multiprocessors = atoi(value.c_str());
    else if (key == "compute-mode")
        config->compute_mode = parse_mode(item, value);
    else if (key == "loose")
        config->loose = atoi(value.c_str()) != 0;
    else if (key == "cc" && sscanf(value.c_str(), "%d.%d", &config->major, &config->minor) == 2)
        return;
    else if (key == "pageable" && (value == "count" || value == "refuse"))
        config->pageable = value == "count" ? hst::Pageable::counted : hst::Pageable::refused;
    else if (key == "arithmetic" && (value == "card" || value == "host"))
        config->card_arithmetic = value == "card";
    else if (key == "streams")
        parse_order(config, item, value);
    else if (key == "refuse")
        config->refusals.push_back(parse_refusal(item, value));
    else if (key == "fail")
        config->faults.push_back(parse_fault(item, value));
    else
        die_config(item);
}

hst::Config hst::parse_config(const char *text)
{
    Config config;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        size_t comma = rest.find(',');
        parse_item(&config, rest.substr(0, comma));
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    config.visible = read_visible(getenv("CUDA_VISIBLE_DEVICES"), config.devices);
    config.devices = (int)config.visible.size();
    return config;
}
