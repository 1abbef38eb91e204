/* SPDX-License-Identifier: Apache-2.0 */
/* A library of cuBLASLt's name, or of the driver's, that has nothing of it. */
int impostor(void);

int impostor(void)
{
    return 0;
}
