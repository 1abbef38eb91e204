/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_MESSAGE_H
#define HOISTWAY_ENGINE_BASE_MESSAGE_H
#include <stdarg.h>
#include <stddef.h>

/**
 * As vsnprintf; of a text that is too long the middle is left out, and what begins with "Fix: "
 * stays: a path may be long. bytes: 64 or more. Pure.
 */
void message_write(char *text, size_t bytes, const char *format, va_list args);

#endif
