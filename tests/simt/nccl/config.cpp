/* SPDX-License-Identifier: Apache-2.0 */
/* The double of NCCL: what HST_FAKE_NCCL asks for, and when a call goes wrong. */
#include "double.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using hst_nccl::Config;
using hst_nccl::Fault;

void hst_nccl::stop(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake NCCL: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    fflush(nullptr);
    abort();
}

/* FUNCTION:CALL:hang, die, async=RESULT or RESULT */
static Fault parse_fault(const std::string &text)
{
    Fault fault;
    const size_t first = text.find(':'), second = text.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
        hst_nccl::stop("fail=%s: not FUNCTION:CALL:WHAT", text.c_str());
    const std::string what = text.substr(second + 1);
    fault.function = text.substr(0, first);
    fault.call = strtoul(text.c_str() + first + 1, nullptr, 10);
    const bool later = what.rfind("async=", 0) == 0;
    fault.result = static_cast<nccl_result>(atoi(what.c_str() + (later ? 6 : 0)));
    fault.what = what == "hang"  ? Fault::hang
                 : what == "die" ? Fault::die
                 : later         ? Fault::async
                                 : Fault::error;
    if (!fault.call || (fault.what >= Fault::async && !fault.result))
        hst_nccl::stop("fail=%s: not FUNCTION:CALL:WHAT", text.c_str());
    return fault;
}

static void take(Config *config, const std::string &name, const std::string &value)
{
    if (name == "version")
        config->version = atoi(value.c_str());
    else if (name == "rank")
        config->rank = atoi(value.c_str());
    else if (name == "in-progress")
        config->in_progress = (unsigned)atoi(value.c_str());
    else if (name == "host")
        config->host = value;
    else if (name == "log")
        config->log = value;
    else if (name == "fail")
        config->faults.push_back(parse_fault(value));
    else
        hst_nccl::stop("HST_FAKE_NCCL: \"%s\" is not known", name.c_str());
}

static Config parse(const char *text)
{
    Config config;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        const size_t comma = rest.find(',');
        const std::string item = rest.substr(0, comma);
        const size_t equals = item.find('=');
        if (equals == std::string::npos)
            hst_nccl::stop("HST_FAKE_NCCL: \"%s\" has no value", item.c_str());
        take(&config, item.substr(0, equals), item.substr(equals + 1));
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return config;
}

/* Never destroyed: what is enqueued may run while the process ends. */
Config &hst_nccl::config()
{
    static Config *config = new Config(parse(getenv("HST_FAKE_NCCL")));
    return *config;
}

static void note(const char *function, int rank)
{
    Config &c = hst_nccl::config();
    if (c.log.empty())
        return;
    const std::string path = c.log + "." + std::to_string(rank);
    FILE *file = fopen(path.c_str(), "a");
    if (!file || fprintf(file, "%s\n", function) < 0 || fclose(file))
        hst_nccl::stop("log=%s cannot be written", path.c_str());
}

Fault::What hst_nccl::strike(const char *function, int rank, nccl_result *result)
{
    Config &c = config();
    note(function, rank);
    for (Fault &fault : c.faults) {
        if (fault.function != function || (c.rank >= 0 && c.rank != rank) ||
            ++fault.calls != fault.call)
            continue;
        if (fault.what == Fault::die)
            raise(SIGKILL);
        *result = fault.result;
        return fault.what;
    }
    return Fault::none;
}
