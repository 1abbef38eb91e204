/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/log/decision.h"

void decision_put(struct json_writer *json, const struct hst_decision *decision)
{
    json_put_text(json, "update", decision->update);
    json_put_text(json, "homes", decision->homes);
    json_put_known(json, "checkpoint_every", decision->checkpoint_every);
    json_put_whole(json, "saved_units", decision->saved_units);
    json_put_whole(json, "resident_units", decision->resident_units);
    json_put_whole(json, "streamed_tiles", decision->streamed_tiles);
    json_put_whole(json, "tiles_in_dram", decision->tiles_in_dram);
    json_put_whole(json, "slices", decision->slices);
    json_put_real(json, "late_share", decision->late_share);
    json_put_whole(json, "update_threads", decision->update_threads);
}
