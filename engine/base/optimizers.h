/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_OPTIMIZERS_H
#define HOISTWAY_ENGINE_BASE_OPTIMIZERS_H
/* The names of all optimizers, each with its value of enum hst_optimizer: the option's choices, and
   the tables of optimizer/. */

#define OPTIMIZERS(X) X(adamw, ADAMW) X(sgd, SGD) X(lion, LION) X(adagrad, ADAGRAD)

#endif
