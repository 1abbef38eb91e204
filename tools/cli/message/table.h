/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_TABLE_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_TABLE_H
#include <hoistway/predict.h>
#include <stdio.h>

/**
 * The tier table: classes × tiers in bytes, totals and budgets; tiers without a budget are left
 * out. locals: ranks that the node's memory and drives are shared by; of several, what all of them
 * take, and may, are two more rows.
 */
void table_print(const struct hst_memory *memory, uint32_t locals, FILE *out);
/** Below it, a line for each group of tensors with numbers of their own. */
void table_print_groups(const struct hst_group *groups, uint32_t count,
                        const struct hst_frozen *frozen, FILE *out);

#endif
