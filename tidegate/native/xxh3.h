/* XXH3 with 64 bits, without a seed: the hash of keys (`state/keygroups.py`). */
#ifndef TIDEGATE_XXH3_H
#define TIDEGATE_XXH3_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

uint64_t xxh3_64(const uint8_t *bytes, size_t length);

#pragma GCC visibility pop

#endif
