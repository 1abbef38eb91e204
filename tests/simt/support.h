/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_SUPPORT_H
#define HST_SIMT_SUPPORT_H
/*
 * For the double's own tests: a program that must fail runs in a child process, and the test looks
 * at how it ended. What each kind of build can see is said by `builds`.
 */
#include "simt.h"
#include <csetjmp>
#include <cstdarg>
#include <csignal>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#if defined(__SANITIZE_ADDRESS__)
enum { WITH_ASAN = 1, WITH_TSAN = 0 };
#elif defined(__SANITIZE_THREAD__)
enum { WITH_ASAN = 0, WITH_TSAN = 1 };
#else
enum { WITH_ASAN = 0, WITH_TSAN = 0 };
#endif

static const char *const all_schedules[] = {"forward", "reversed", "ahead", "ahead-reversed",
                                            "random:7"};

struct Outcome {
    bool ended; /* the program returned; `right` is what it returned */
    bool right;
    std::string text; /* of stderr */
};

/* Runs body in a child, under the schedule. */
static inline Outcome outcome_of(const char *schedule, const std::function<bool()> &body)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        signal(SIGABRT, SIG_DFL); /* cmocka's handlers would go on with the next test */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (!hst::set_schedule(schedule))
            abort();
        exit(body() ? 0 : 1);
    }
    close(ends[1]);
    Outcome outcome = {};
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
        outcome.text.append(buffer, (size_t)n);
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    outcome.ended = WIFEXITED(status) && WEXITSTATUS(status) <= 1 &&
                    outcome.text.find("Sanitizer") == std::string::npos;
    outcome.right = outcome.ended && WEXITSTATUS(status) == 0;
    return outcome;
}

static inline void expect_right(const std::function<bool()> &body)
{
    for (const char *schedule : all_schedules) {
        Outcome outcome = outcome_of(schedule, body);
        if (!outcome.right)
            fail_msg("%s: %s", schedule, outcome.ended ? "wrong result" : outcome.text.c_str());
    }
}

/* Wrong in one of the schedules at least; under TSan in each. */
static inline void expect_caught(const std::function<bool()> &body)
{
    unsigned caught = 0;
    for (const char *schedule : all_schedules)
        caught += !outcome_of(schedule, body).right;
    if (!caught || (WITH_TSAN && caught < sizeof all_schedules / sizeof *all_schedules))
        fail_msg("caught in %u schedules only", caught);
}

/* Ends by this message in every schedule. */
static inline void expect_message(const char *message, const std::function<bool()> &body)
{
    for (const char *schedule : all_schedules) {
        Outcome outcome = outcome_of(schedule, body);
        if (outcome.ended || outcome.text.find(message) == std::string::npos)
            fail_msg("%s: no \"%s\" but: %s", schedule, message, outcome.text.c_str());
    }
}

/* Device memory that holds what the host gives, and back. */
template <class T> struct Vector {
    T *data = nullptr;
    size_t count;
    explicit Vector(size_t n, T value = T()) : count(n)
    {
        std::vector<T> values(n, value);
        assert_int_equal(cudaMalloc(reinterpret_cast<void **>(&data), n * sizeof(T)), 0);
        write(values);
    }
    Vector(const Vector &) = delete;
    Vector &operator=(const Vector &) = delete;
    ~Vector()
    {
        cudaFree(data);
    }
    void write(const std::vector<T> &values)
    {
        assert_int_equal(cudaMemcpy(data, values.data(), count * sizeof(T), cudaMemcpyDefault), 0);
    }
    std::vector<T> read()
    {
        std::vector<T> values(count);
        assert_int_equal(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDefault), 0);
        return values;
    }
};

#endif
