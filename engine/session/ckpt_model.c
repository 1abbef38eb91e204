/* SPDX-License-Identifier: Apache-2.0 */
/* A store is read with the model that a client describes to an engine. */
#include "ckpt/ckpt.h"
#include "session/engine_state.h"

#include <errno.h>

int hst_ckpt_model(struct hst_ckpt *ckpt, struct hst_engine *engine, struct hst_error *error)
{
    if (engine->phase != PHASE_DESCRIBE ||
        layout_seal(&engine->layout, ckpt->layout.tile_elements, SHARE_ALL))
        return store_refuse(error, HST_E_VALUE, -EINVAL,
                            "the model of a store is described by an engine that is not sealed");
    return ckpt_take_model(ckpt, engine->config.precision, &engine->layout, error);
}
