/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_TABLE_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_TABLE_H
#include <hoistway/hoistway.h>
#include <stdio.h>

/**
 * The tier table: classes × tiers in bytes, totals and budgets; tiers without a budget are left
 * out.
 */
void table_print(const struct hst_memory *memory, FILE *out);

#endif
